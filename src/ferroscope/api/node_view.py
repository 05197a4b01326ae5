"""How a node looks to a caller of a given microversion: which fields, in whose words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError, NotAcceptableError
from ferroscope.api.node_fields import BY_NAME, FIELDS, Field
from ferroscope.core.model import Node
from ferroscope.core.states import Provision

DEFAULT_FIELDS: Final = ("instance_uuid", "maintenance", "power_state", "provision_state", "uuid", "name")

_FIELDS_SINCE: Final = 8
_DETAIL_SINCE: Final = 43
_AVAILABLE_SINCE: Final = 2
_INSPECT_WAIT_SINCE: Final = 39

NodeView = msgspec.defstruct(
    "NodeView",
    [(field.name, field.type | msgspec.UnsetType, msgspec.UNSET) for field in FIELDS],
    namespace={"__doc__": "A node, as far as the microversion and the asked-for fields go."},
    module=__name__,
)


class NodeList(msgspec.Struct, frozen=True):
    """A page of nodes; ``next`` is the address of the page after it."""

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
    """Return the fields that a call asks for, None for all; refuse what its version or the two forbid."""
    if fields is not None and minor < _FIELDS_SINCE:
        raise NotAcceptableError(f"fields needs API version 1.{_FIELDS_SINCE}.")
    if detail is not None and minor < _DETAIL_SINCE:
        raise BadRequestError(f"detail needs API version 1.{_DETAIL_SINCE}; use /v1/nodes/detail before it.")
    if fields is not None and detail:
        raise BadRequestError("detail and fields exclude each other; use one of them.")
    if fields is None:
        return None if detail else default
    return fields


def render(node: Node, fields: tuple[Field, ...], minor: int, url: str) -> dict[str, Any]:
    """Return the node with these fields."""
    shown = {field.name: field.get(node, url) for field in fields}
    if "provision_state" in shown:
        shown["provision_state"] = old_provision_state(node.provision_state, minor)
    return shown


def select(minor: int, names: Sequence[str] | None) -> tuple[Field, ...]:
    """Return the fields to show, None for all; refuse unknown ones with 400, newer ones with 406."""
    return _select(minor, None if names is None else tuple(names))


@lru_cache(maxsize=512)
def _select(minor: int, names: tuple[str, ...] | None) -> tuple[Field, ...]:
    if names is None:
        return tuple(field for field in FIELDS if field.since <= minor)
    unknown = sorted({name for name in names if name not in BY_NAME or BY_NAME[name].full_only})
    if unknown:
        raise BadRequestError(f"Field(s) {', '.join(name[:80] for name in unknown[:8])} are not valid for a node.")
    if names != DEFAULT_FIELDS:
        check_known(names, minor)
    wanted = {*names, "links"}
    return tuple(field for field in FIELDS if field.name in wanted and field.since <= minor)


def check_known(names: Sequence[str], minor: int) -> None:
    """Refuse with 406 whatever is newer than the call's version."""
    for name in names:
        if name in BY_NAME and BY_NAME[name].since > minor:
            raise NotAcceptableError(f"The field {name} needs API version 1.{BY_NAME[name].since}.")


def old_provision_state(state: Provision, minor: int) -> str | None:
    """Return the state as callers of that version know it."""
    if state is Provision.AVAILABLE and minor < _AVAILABLE_SINCE:
        return None
    if state is Provision.INSPECT_WAIT and minor < _INSPECT_WAIT_SINCE:
        return str(Provision.INSPECTING)
    return str(state)
