"""Every field of a node's representation: since which microversion, its type, where it comes from.

What is stored of a node is declared in ``core.node``; here is what the Bare Metal API shows beside it, and how a
stored value looks to callers. Source: the Bare Metal API reference; ``auto_discovered`` is from the specification
that merged the inspector into the Bare Metal service; ``inbox``, ``orphaned_at`` and ``hardware``, a summary of the
last inventory, are Ferroscope's own.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.documented import one_of
from ferroscope.api.links import Link, pair
from ferroscope.api.times import iso
from ferroscope.core import values
from ferroscope.core.model import Document, Node
from ferroscope.core.node import NODE_FIELDS, STORED, NodeField

Getter = Callable[[Node, str], Any]


class Field(msgspec.Struct, frozen=True):
    """``get`` takes the node and the API's address; ``full_only``: shown in full representations alone."""

    name: str
    since: int
    type: Any
    get: Getter
    full_only: bool = False


# The interfaces by which this service itself speaks to a machine: the driver, unless set.
_DRIVEN: Final = frozenset({"management_interface", "power_interface"})


def _of_the_node(field: NodeField, since: int) -> Field:
    name = field.shown_as or field.name
    if not field.stored:
        return Field(name, since, field.type, _attribute(field.name, field.default))
    if field.plain is float:
        return Field(name, since, str | None, lambda node, _url: iso(getattr(node, field.name)))
    if field.masked:
        return Field(name, since, field.type, lambda node, _url: values.mask(getattr(node, field.name)))
    kind = str | None if isinstance(field.plain, type) and issubclass(field.plain, StrEnum) else field.type
    return Field(name, since, kind, lambda node, _url: getattr(node, field.name))


def _attribute(name: str, default: Any) -> Getter:
    if name in _DRIVEN:
        return lambda node, _url: node.attributes.get(name) or node.driver
    if isinstance(default, str):
        return lambda node, _url: node.attributes.get(name) or default
    return lambda node, _url: node.attributes.get(name, default)


def _fixed(name: str, since: int, kind: Any, value: Any) -> Field:
    return Field(name, since, kind, lambda _node, _url: value)


def _collection(name: str, since: int) -> Field:
    return Field(name, since, list[Link], lambda node, url: pair(url, f"nodes/{node.uuid}/{name}"), full_only=True)


_OF_THE_API: Final = (
    _fixed("allocation_uuid", 52, str | None, None),
    _fixed("boot_mode", 75, str | None, None),
    _fixed("chassis_uuid", 1, str | None, None),
    _fixed("clean_step", 7, Document, {}),
    _fixed("conductor", 49, str | None, None),
    _fixed("console_enabled", 1, bool, False),
    _fixed("deploy_step", 44, Document, {}),
    _fixed("fault", 42, str | None, None),
    Field("links", 1, list[Link], lambda node, url: pair(url, f"nodes/{node.uuid}")),
    _collection("portgroups", 24),
    _collection("ports", 1),
    _fixed("raid_config", 12, Document, {}),
    _fixed("reservation", 1, str | None, None),
    _fixed("secure_boot", 75, bool | None, None),
    _fixed("service_step", 87, Document, {}),
    _collection("states", 14),
    _fixed("target_raid_config", 12, Document, {}),
    _collection("volume", 32),
)

FIELDS: Final[tuple[Field, ...]] = tuple(
    sorted(
        (*_OF_THE_API, *(_of_the_node(field, field.since) for field in NODE_FIELDS if field.since is not None)),
        key=lambda field: field.name,
    )
)
BY_NAME: Final[dict[str, Field]] = {field.name: field for field in FIELDS}
FieldName = Annotated[str, one_of(*(field.name for field in FIELDS if not field.full_only))]

# What may be ordered by, as the store calls it; "id" is the order of creation.
SORT_FIELDS: Final[dict[str, str]] = {"id": "created_at"} | {
    name: name for name in sorted(field.name for field in STORED if field.sorts)
}
NodeSortKey = Annotated[str, one_of(*SORT_FIELDS)]
