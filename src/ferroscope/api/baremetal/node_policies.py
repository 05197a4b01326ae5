"""Which policy guards which field of a node: one table for POST and PATCH.

``create`` or ``update`` guards fields without a policy of their own. A flag that also has a call of its own, or that
has a dangerous value, is guarded by value. Source: the Bare Metal service's policy reference, and its handling of
``instance_name`` and ``automated_clean``; maintenance is stricter here: that service lets every caller who may update a
node end its maintenance by a patch. Labels are Ferroscope's own: they select what hardware is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from ferroscope.api.auth import access
from ferroscope.api.auth.identity import Identity
from ferroscope.api.auth.policy import Policy
from ferroscope.api.baremetal.node_input import PATCHABLE, NodeSettable
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope.api.http.json_patch import Operation
from ferroscope_client.core.node import SETTABLE, Node

CREATE: Final = ("baremetal:node:create", "baremetal:node:create:self_owned_node")
UPDATE: Final = "baremetal:node:update"
LABELS: Final = "ferroscope:label:set"

_GUARDED: Final = (
    "driver_info", "properties", "name", "instance_uuid", "owner", "lessee", "conductor_group", "disable_power_off",
    "network_data", "parent_node", "retired", "shard", "chassis_uuid",
)  # fmt: skip
FIELD_POLICIES: Final[dict[str, str]] = (
    {field: f"baremetal:node:update:{field}" for field in _GUARDED}
    | {"extra": "baremetal:node:update_extra", "labels": LABELS}
    | dict.fromkeys(("instance_info", "instance_name"), "baremetal:node:update_instance_info")
    | {"retired_reason": "baremetal:node:update:retired", "driver": "baremetal:node:update:driver_interfaces"}
    | {name: "baremetal:node:update:driver_interfaces" for name in PATCHABLE if name.endswith("_interface")}
)


class _ByValue(NamedTuple):
    """The policies of a flag; None: as if it had none."""

    on: str | None
    off: str | None


_BY_VALUE: Final[dict[str, _ByValue]] = {
    "automated_clean": _ByValue(None, "baremetal:node:disable_cleaning"),
    "maintenance": _ByValue("baremetal:node:set_maintenance", "baremetal:node:clear_maintenance"),
}
# Any of these lets a PATCH in; each operation is then checked by ``of_patch``.
SUFFICIENT: Final = tuple(
    dict.fromkeys(
        [*FIELD_POLICIES.values(), *(policy for pair in _BY_VALUE.values() for policy in pair if policy is not None)]
    )
)


class Guarded(NamedTuple):
    """A field, the value if it matters ("" if not), and its policy; "": that of the call."""

    field: str
    value: str
    policy: str


def guarded_fields() -> Iterator[Guarded]:
    """Yield all fields that callers may set."""
    for field in sorted(PATCHABLE):
        if field in _BY_VALUE:
            yield from (Guarded(field, text, of(field, text == "true") or "") for text in ("true", "false"))
        else:
            yield Guarded(field, "", of(field, UNSET) or "")


def of(field: str, value: Any) -> str | None:
    """Return the policy that guards setting a field to this value, None if that of the call does; UNSET: removed."""
    pair = _BY_VALUE.get(field)
    if pair is None:
        return FIELD_POLICIES.get(field)
    # Cleaning is disabled by false only: without a value the default of the service applies.
    if field == "automated_clean" and value in (None, UNSET):
        return pair.on
    try:
        return pair.on if value not in (None, UNSET) and decoding.boolean(field, value) else pair.off
    except BadRequestError:  # it will be refused as invalid
        return pair.on


def of_patch(operations: Iterable[Operation]) -> set[str]:
    """Return the policies that must allow a JSON patch."""
    fields = ((operation.path.lstrip("/").partition("/")[0], operation) for operation in operations)
    return {
        of(field, UNSET if operation.op == "remove" else operation.value) or UPDATE for field, operation in fields
    } or {UPDATE}


def of_body(body: NodeSettable) -> set[str]:
    """Return the policies, besides that of the call, that must allow to create a node with these fields.

    The owner is left out: the policies of the call decide for which owners a caller may create nodes.
    """
    values = {name: value for name in PATCHABLE if (value := getattr(body, name)) is not UNSET and name != "owner"}
    return {policy for name, value in values.items() if not is_default(name, value) and (policy := of(name, value))}


def is_default(field: str, value: Any) -> bool:
    """Return whether the value is what a new node has anyway: clients send whole nodes."""
    return value is None or value == SETTABLE[field].default


def require_for_new(policy: Policy, identity: Identity, node: Node, body: NodeSettable) -> None:
    """Check a body that creates ``node`` like a change of these fields by its owner."""
    target = access.target_of(node)
    for needed in sorted(of_body(body)):
        access.require(policy, needed, identity, target)


def require_for_change(policy: Policy, identity: Identity, node: Node, operations: Iterable[Operation]) -> None:
    """Check a JSON patch of ``node``."""
    target = access.target_of(node)
    for needed in sorted(of_patch(operations)):
        access.require(policy, needed, identity, target)
