"""The fields of a node's representation: microversion, type, and how the value is derived.

Stored fields are declared in ``core.node``; this adds the other fields of the Bare Metal API, and how stored values are
represented. Source: the Bare Metal API reference; ``auto_discovered`` is from the specification that merged the
inspector into the Bare Metal service; ``deviations``, ``inbox``, ``labels``, ``orphaned_at`` and ``hardware``, a
summary of the last inventory, are Ferroscope's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.auth.access import ANSWERS, INVENTORY, may, target_of
from ferroscope.api.auth.identity import Identity
from ferroscope.api.auth.policy import Policy
from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.http.schemas import ApiLink, iso, one_of, pair
from ferroscope.core.bmc_texts import error_without_answer
from ferroscope.core.model import Document, Node
from ferroscope_client.core import values
from ferroscope_client.core.node import NODE_FIELDS, NodeField
from ferroscope_client.core.states import Provision

Getter = Callable[[Node, str], Any]


class Field(msgspec.Struct, frozen=True):
    """``get`` takes the node and the API's base URL; ``full_only``: shown in full representations only.

    ``reads``: the stored fields that the value depends on, besides those of ``ALWAYS_READ``.
    """

    name: str
    since: int
    type: Any
    get: Getter
    full_only: bool = False
    reads: tuple[str, ...] = ()


def _of_the_node(field: NodeField, since: int) -> Field:
    name = field.shown_as or field.name
    reads: tuple[str, ...] = (field.name,)
    if not field.stored:
        # The default of an interface depends on whether the node has an image of its own.
        reads = ("driver_info",) if name.endswith("_interface") else ()
        return Field(name, since, field.type, _attribute(field.name, field.default), reads=reads)
    if field.plain is float:
        return Field(name, since, str | None, lambda node, _url: iso(getattr(node, field.name)), reads=reads)
    if field.masked:
        return Field(name, since, field.type, lambda node, _url: values.mask(getattr(node, field.name)), reads=reads)
    kind = str | None if isinstance(field.plain, type) and issubclass(field.plain, StrEnum) else field.type
    return Field(name, since, kind, lambda node, _url: getattr(node, field.name), reads=reads)


def _attribute(name: str, default: Any) -> Getter:
    if isinstance(default, str):
        return lambda node, _url: node.attributes.get(name) or default
    return lambda node, _url: node.attributes.get(name, default)


def _fixed_field(name: str, since: int, kind: Any, value: Any) -> Field:
    return Field(name, since, kind, lambda _node, _url: value)


def _collection(name: str, since: int) -> Field:
    return Field(name, since, list[ApiLink], lambda node, url: pair(url, f"nodes/{node.uuid}/{name}"), full_only=True)


CONDUCTOR_SINCE: Final = 49

_OF_THE_API: Final = (
    _fixed_field("allocation_uuid", 52, str | None, None),
    _fixed_field("boot_mode", 75, str | None, None),
    _fixed_field("clean_step", 7, Document, {}),
    _fixed_field("conductor", CONDUCTOR_SINCE, str | None, None),  # see ``nodes``
    _fixed_field("console_enabled", 1, bool, False),
    _fixed_field("deploy_step", 44, Document, {}),
    _fixed_field("fault", 42, str | None, None),
    _fixed_field("health", 109, str | None, None),
    Field("links", 1, list[ApiLink], lambda node, url: pair(url, f"nodes/{node.uuid}")),
    _collection("portgroups", 24),
    _collection("ports", 1),
    _fixed_field("raid_config", 12, Document, {}),
    _fixed_field("reservation", 1, str | None, None),
    _fixed_field("secure_boot", 75, bool | None, None),
    _fixed_field("service_step", 87, Document, {}),
    _collection("states", 14),
    _fixed_field("target_raid_config", 12, Document, {}),
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

# Fields that decide who may see a node, and which conductor and interfaces it has.
ALWAYS_READ: Final = frozenset({"uuid", "driver", "owner", "attributes"})


def read_for(fields: tuple[Field, ...]) -> frozenset[str]:
    """Return the stored fields that are needed to show these."""
    return ALWAYS_READ.union(*(field.reads for field in fields))


# Sort keys and their stored fields. "id" is the order of creation, and so is a column of Ironic that nodes lack here.
_BY_CREATION: Final = (
    "id", "allocation_id", "boot_mode", "conductor_affinity", "console_enabled", "fault", "reservation", "secure_boot",
)  # fmt: skip
SORT_FIELDS: Final[dict[str, str]] = (
    dict.fromkeys(_BY_CREATION, "created_at")
    | {"chassis_id": "chassis_uuid"}
    | {field.name: field.name for field in NODE_FIELDS if field.sorts}
)
NodeSortKey = Annotated[str, one_of(*SORT_FIELDS)]


# The representation of a node for a given microversion.

DEFAULT_FIELDS: Final = ("instance_uuid", "maintenance", "power_state", "provision_state", "uuid", "name")

_FIELDS_SINCE: Final = 8
_DETAIL_SINCE: Final = 43
_AVAILABLE_SINCE: Final = 2
_INSPECT_WAIT_SINCE: Final = 39

NodeView = msgspec.defstruct(
    "NodeView",
    [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in FIELDS],
    namespace={"__doc__": "A node, with the requested fields that the microversion supports."},
    module=__name__,
)


class NodeList(msgspec.Struct, frozen=True):
    """A page of nodes; ``next`` is the URL of the next page."""

    nodes: list[NodeView]  # type: ignore[valid-type]  # made from the table above
    next: str | msgspec.UnsetType = msgspec.UNSET


class NodeStates(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/states."""

    console_enabled: bool
    last_error: str | None
    power_state: str | None
    provision_state: str | None
    provision_updated_at: str | None
    target_power_state: str | None
    target_provision_state: str | None
    raid_config: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    target_raid_config: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    boot_mode: str | msgspec.UnsetType | None = msgspec.UNSET
    secure_boot: bool | msgspec.UnsetType | None = msgspec.UNSET


def chosen_fields(
    minor: int, fields: Sequence[str] | None, detail: bool | None, default: Sequence[str] | None
) -> Sequence[str] | None:
    """Return the requested fields, None for all; check the microversion."""
    if fields is not None and minor < _FIELDS_SINCE:
        raise NotAcceptableError(f"fields requires API version 1.{_FIELDS_SINCE}.")
    if detail is not None and minor < _DETAIL_SINCE:
        raise BadRequestError(f"detail requires API version 1.{_DETAIL_SINCE}; before it, use /v1/nodes/detail.")
    if fields is not None and detail:
        raise BadRequestError("detail and fields are mutually exclusive.")
    if fields is None:
        return None if detail else default
    return fields


def render(node: Node, fields: tuple[Field, ...], minor: int, url: str) -> dict[str, Any]:
    """Return the node with these fields."""
    shown = {field.name: field.get(node, url) for field in fields}
    if "provision_state" in shown:
        shown["provision_state"] = old_provision_state(node.provision_state, minor)
    return shown


# Fields that some callers see without their content, as in the Bare Metal service, and what they see instead.
REDACTED: Final = {
    "last_error": ("baremetal:node:get:last_error", "** Value Redacted - Requires {} permission. **"),
    "reservation": ("baremetal:node:get:reservation", "** Redacted - requires {} permission. **"),
    "driver_internal_info": ("baremetal:node:get:driver_internal_info", "** Redacted - Requires {} permission. **"),
    "driver_info": ("baremetal:node:get:driver_info", "** Redacted - requires {} permission. **"),
    "deviations": (INVENTORY, "** Redacted - requires {} permission. **"),
    "hardware": (INVENTORY, "** Redacted - requires {} permission. **"),
}
# Fields whose emptiness reveals something: whether the hardware is as expected, or was ever inspected.
_ALSO_IF_EMPTY: Final = ("deviations", "hardware")


def reveals(policy: Policy, identity: Identity, node: Node, field: str) -> bool:
    """Return whether this caller may see the content of the field, also through a filter or the order of a list."""
    return field not in REDACTED or may(policy, REDACTED[field][0], identity, target_of(node))


def shown_to(policy: Policy, identity: Identity, node: Node, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the representation without content that this caller may not see."""
    for name, (needed, text) in REDACTED.items():
        if name not in shown:
            continue
        value = shown[name]
        if (value or name in _ALSO_IF_EMPTY) and not reveals(policy, identity, node, name):
            replacement = text.format(needed)
            kinds: dict[type, Any] = {dict: {"content": replacement}, list: [{"content": replacement}]}
            shown[name] = kinds.get(type(value), replacement)
        elif value and name == "driver_info" and may(policy, "show_password", identity, target_of(node)):
            shown[name] = node.driver_info
        elif value and name == "last_error" and not may(policy, ANSWERS, identity, target_of(node)):
            shown[name] = error_without_answer(value)
    return shown


def select(minor: int, names: Sequence[str] | None) -> tuple[Field, ...]:
    """Return the fields to show, None for all; 400 for unknown fields, 406 for newer ones."""
    return _select(minor, None if names is None else tuple(names))


@lru_cache(maxsize=512)
def _select(minor: int, names: tuple[str, ...] | None) -> tuple[Field, ...]:
    if names is None:
        return tuple(field for field in FIELDS if field.since <= minor)
    unknown = sorted({name for name in names if name not in BY_NAME or BY_NAME[name].full_only})
    if unknown:
        raise BadRequestError(f"Unknown field(s) of a node: {', '.join(name[:80] for name in unknown[:8])}.")
    if names != DEFAULT_FIELDS:
        check_known(names, minor)
    wanted = {*names, "links"}
    return tuple(field for field in FIELDS if field.name in wanted and field.since <= minor)


def check_known(names: Iterable[str], minor: int) -> None:
    """Raise 406 for fields that are newer than the microversion."""
    for name in names:
        if name in BY_NAME and BY_NAME[name].since > minor:
            raise NotAcceptableError(f"The field {name} requires API version 1.{BY_NAME[name].since}.")


def old_provision_state(state: Provision, minor: int) -> str | None:
    """Return the state as callers of that version know it."""
    if state is Provision.AVAILABLE and minor < _AVAILABLE_SINCE:
        return None
    if state is Provision.INSPECT_WAIT and minor < _INSPECT_WAIT_SINCE:
        return str(Provision.INSPECTING)
    return str(state)
