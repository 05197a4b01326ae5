"""Filters of a list of nodes, applied by the store's indexes or here.

Source: the Bare Metal API reference; parameters that are newer than the microversion get 406.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.api.baremetal.node_fields import (
    CONDUCTOR_SINCE,
    REDACTED,
    FieldName,
    NodeSortKey,
)
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.http import decoding
from ferroscope.api.http.schemas import Limit, ProvisionState, SortDir, Uuid
from ferroscope.core.model import Node
from ferroscope_client.core import labels
from ferroscope_client.core.labels import LabelError, Selector
from ferroscope_client.core.node import NODE_FIELDS, NodeField, TextForm
from ferroscope_client.core.states import FAULTS, PUBLISHED_STATES, Provision

# Parameters that are not a plain comparison with a field of a node: type and microversion.
_OTHERS: Final[dict[str, tuple[Any, int]]] = {
    "associated": (bool, 1),
    "conductor": (str, CONDUCTOR_SINCE),
    "description_contains": (str, 51),
    "detail": (bool, 1),
    "deviating": (bool, 84),
    "fault": (str, 42),
    "fields": (list[FieldName], 1),
    "include_children": (bool, 83),
    "labels": (str, 84),
    "limit": (Limit, 1),
    "marker": (Uuid, 1),
    "orphaned": (bool, 84),
    "project": (str, 1),
    "shard": (list[str], 82),
    "sharded": (bool, 82),
}
_FILTERS: Final = {field.name: field for field in NODE_FIELDS if field.filters is not None}
# The fields that filters read, if their names differ. Nodes are left out if the caller may not see the content of the
# field. Otherwise a list would reveal what the representation hides.
READ_BY: Final = {"deviating": "deviations", "description_contains": "description", "labels": "labels"}

_COLUMNS: Final = {"associated": "instance_uuid", "labels": "labels", "orphaned": "orphaned_at"}


def _kind(field: NodeField) -> Any:
    """Return the type of the parameter that filters by this field."""
    if field.plain is Provision:
        return ProvisionState
    return Uuid if field.form is TextForm.UUID else field.plain


_PARAMETERS: Final = sorted(
    [(name, kind, since) for name, (kind, since) in _OTHERS.items()]
    + [(name, _kind(field), field.filters or 1) for name, field in _FILTERS.items()],
    key=lambda keyed: keyed[0],
)

if TYPE_CHECKING:

    class _Parameters(msgspec.Struct, frozen=True):
        """A stand-in for type checkers: the struct is created dynamically below."""

        def __getattr__(self, name: str) -> Any: ...

else:
    _Parameters = msgspec.defstruct(
        "_Parameters",
        [
            *((name, kind | None, None) for name, kind, _ in _PARAMETERS),
            ("sort_dir", SortDir, "asc"),
            ("sort_key", NodeSortKey, "id"),
        ],
        frozen=True,
    )


class NodeListQuery(_Parameters, frozen=True):
    """Query of GET /v1/nodes."""


Keep = Callable[[Node], bool]


def check_versions(query: NodeListQuery, minor: int) -> None:
    """Raise 406 for parameters that are newer than the microversion."""
    for name, _, since in _PARAMETERS:
        if minor < since and getattr(query, name) is not None:
            raise NotAcceptableError(f"The parameter {name} requires API version 1.{since}.")


def store_filters(query: NodeListQuery) -> dict[str, Any]:
    """Return the filters that the store applies."""
    return {
        name: _as_stored(field, value)
        for name, field in _FILTERS.items()
        if field.stored and (value := getattr(query, name)) is not None
    }


def fields_read(query: NodeListQuery) -> list[str]:
    """Return the fields with redacted content that the filters and the order of the list depend on."""
    names = [name for name, _, _ in _PARAMETERS if getattr(query, name) is not None]
    return [field for name in (*names, query.sort_key) if (field := READ_BY.get(name, name)) in REDACTED]


def columns_read(query: NodeListQuery) -> list[str]:
    """Return the stored fields that ``other_filters`` depends on, besides those that are always read."""
    return [field for name, field in _COLUMNS.items() if getattr(query, name) is not None]


def present(query: NodeListQuery) -> tuple[str, ...]:
    """Return attributes that all nodes of the list have, so that the store can leave out most other nodes."""
    asked = {"deviations": query.deviating, "shard": query.sharded}
    return tuple(name for name, wanted in asked.items() if wanted)


def _as_stored(field: NodeField, value: Any) -> Any:
    if field.plain is Provision:
        return _provision_state(value)
    if field.form is TextForm.GROUP:
        return value.lower()
    return decoding.uuid(field.name, value) if field.form is TextForm.UUID else value


def other_filters(query: NodeListQuery, conductor_of: Callable[[Node], str | None]) -> Keep:
    """Return a predicate for all other filters; nodes with a parent are listed on request only."""
    tests: list[Keep] = [
        _equals(name, value)
        for name, field in _FILTERS.items()
        if not field.stored and (value := getattr(query, name)) is not None
    ]
    if query.parent_node is None and not query.include_children:
        tests.append(lambda node: not node.attributes.get("parent_node"))
    if query.associated is not None:
        tests.append(lambda node: (node.instance_uuid is not None) == query.associated)
    if query.conductor is not None:
        tests.append(lambda node: conductor_of(node) == query.conductor)
    if query.deviating is not None:
        tests.append(lambda node: bool(node.attributes.get("deviations")) == query.deviating)
    if query.fault is not None:
        if query.fault not in FAULTS:
            raise BadRequestError(f'Unrecognized fault "{query.fault[:80]}" is specified, allowed faults are {FAULTS}')
        tests.append(lambda _node: False)  # it is not set on any node
    if query.description_contains is not None:
        wanted = query.description_contains.lower()
        tests.append(lambda node: wanted in str(node.attributes.get("description") or "").lower())
    if query.labels is not None:
        chosen = selector(query.labels)
        tests.append(lambda node: chosen.fits(node.labels))
    if query.orphaned is not None:
        tests.append(lambda node: (node.orphaned_at is not None) == query.orphaned)
    if query.project is not None:
        tests.append(lambda node: query.project in (node.owner, node.attributes.get("lessee")))
    if query.shard is not None:
        shards = frozenset(query.shard)
        tests.append(lambda node: node.attributes.get("shard") in shards)
    if query.sharded is not None:
        tests.append(lambda node: (node.attributes.get("shard") is not None) == query.sharded)
    return lambda node: all(test(node) for test in tests)


def _equals(attribute: str, value: bool | str) -> Keep:
    if isinstance(value, bool):
        return lambda node: bool(node.attributes.get(attribute)) == value
    return lambda node: node.attributes.get(attribute) == value


def selector(text: str) -> Selector:
    """Return the selector of labels; ``BadRequestError``."""
    try:
        return labels.selector(text)
    except LabelError as exc:
        raise BadRequestError(f"Invalid labels: {exc}.") from None


def _provision_state(value: str) -> str:
    if value not in PUBLISHED_STATES:
        raise BadRequestError(f'Provision state "{value[:80]}" is not valid')
    return value
