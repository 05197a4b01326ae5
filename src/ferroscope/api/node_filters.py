"""What a list of nodes may be narrowed by, and who does it: the store's indexes, or this.

Source: the Bare Metal API reference; parameters newer than the call's microversion are refused
with 406.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope.api import scalars
from ferroscope.api.documented import Limit, ProvisionState, SortDir, Uuid
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.node_fields import FieldName, NodeSortKey
from ferroscope.core.model import Node
from ferroscope.core.node import NODE_FIELDS, Form, NodeField
from ferroscope.core.states import Provision

# Parameters that are no field of a node, or no plain comparison with one: type, and microversion where not any.
_OTHERS: Final[dict[str, tuple[Any, int]]] = {
    "associated": (bool, 1),
    "conductor": (str, 49),
    "description_contains": (str, 51),
    "detail": (bool, 1),
    "fault": (str, 42),
    "fields": (list[FieldName], 1),
    "include_children": (bool, 83),
    "limit": (Limit, 1),
    "marker": (Uuid, 1),
    "orphaned": (bool, 84),
    "project": (str, 1),
    "shard": (list[str], 82),
    "sharded": (bool, 82),
}
_FILTERS: Final = {field.name: field for field in NODE_FIELDS if field.filters is not None}


def _kind(field: NodeField) -> Any:
    """Return the type of the parameter that narrows a list by this field."""
    if field.plain is Provision:
        return ProvisionState
    return Uuid if field.form is Form.UUID else field.plain


_PARAMETERS: Final = sorted(
    [(name, kind, since) for name, (kind, since) in _OTHERS.items()]
    + [(name, _kind(field), field.filters or 1) for name, field in _FILTERS.items()],
    key=lambda one: one[0],
)

if TYPE_CHECKING:

    class _Parameters(msgspec.Struct, frozen=True):
        """What is made below; type checkers cannot follow."""

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
    """Refuse parameters that the call's microversion does not know."""
    for name, _, since in _PARAMETERS:
        if minor < since and getattr(query, name) is not None:
            raise NotAcceptableError(f"The parameter {name} needs API version 1.{since}.")


def stored(query: NodeListQuery) -> dict[str, Any]:
    """Return the filters that the store applies."""
    return {
        name: _as_stored(field, value)
        for name, field in _FILTERS.items()
        if field.stored and (value := getattr(query, name)) is not None
    }


def _as_stored(field: NodeField, value: Any) -> Any:
    if field.plain is Provision:
        return _provision_state(value)
    if field.form is Form.GROUP:
        return value.lower()
    return scalars.uuid(field.name, value) if field.form is Form.UUID else value


def kept(query: NodeListQuery) -> Keep:
    """Return the test for everything else; nodes with a parent are shown on request only."""
    tests: list[Keep] = [
        _equals(name, value)
        for name, field in _FILTERS.items()
        if not field.stored and (value := getattr(query, name)) is not None
    ]
    if query.parent_node is None and not query.include_children:
        tests.append(lambda node: not node.attributes.get("parent_node"))
    if query.associated is not None:
        tests.append(lambda node: (node.instance_uuid is not None) == query.associated)
    if query.conductor is not None or query.fault is not None:
        tests.append(lambda _node: False)  # no node here ever has either
    if query.description_contains is not None:
        wanted = query.description_contains.lower()
        tests.append(lambda node: wanted in str(node.attributes.get("description") or "").lower())
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


def _provision_state(value: str) -> str:
    known = [str(state) for state in Provision]
    if value not in known:
        raise BadRequestError(f"Provision state {scalars.shown(value)} is not valid here; valid: {', '.join(known)}.")
    return value
