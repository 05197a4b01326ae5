"""What hangs on a node: its states, maintenance, validation and traits.

Source: the Bare Metal API reference.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.idents import node_ident
from ferroscope.api.node_view import NodeStates, old_provision_state
from ferroscope.api.times import iso
from ferroscope.contracts.store import Transaction
from ferroscope.core.model import Node

_RAID_SINCE = 12
_BOOT_MODE_SINCE = 75


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/nodes/{node}/maintenance; the body may be left out."""

    reason: str | None = None


class InterfaceCheck(msgspec.Struct, frozen=True, omit_defaults=True):
    """``result`` None: there is no such interface here; ``reason`` says what is wrong."""

    result: bool | None
    reason: str | None = None


class NodeValidation(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/validate."""

    bios: InterfaceCheck
    boot: InterfaceCheck
    console: InterfaceCheck
    deploy: InterfaceCheck
    firmware: InterfaceCheck
    inspect: InterfaceCheck
    management: InterfaceCheck
    network: InterfaceCheck
    power: InterfaceCheck
    raid: InterfaceCheck
    rescue: InterfaceCheck
    storage: InterfaceCheck


class Traits(msgspec.Struct, frozen=True):
    """GET /v1/nodes/{node}/traits."""

    traits: list[str]


def get_states(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Show the states of a node, and nothing else of it."""
    node = _get(context, call)
    raid: dict[str, Any] | UnsetType = {} if call.minor >= _RAID_SINCE else UNSET
    boot = None if call.minor >= _BOOT_MODE_SINCE else UNSET
    states = NodeStates(
        console_enabled=False,
        last_error=node.last_error,
        power_state=node.power_state,
        provision_state=old_provision_state(node.provision_state, call.minor),
        provision_updated_at=iso(node.provision_updated_at),
        target_power_state=node.target_power_state,
        target_provision_state=node.target_provision_state,
        raid_config=raid,
        target_raid_config=raid,
        boot_mode=boot,
        secure_boot=boot,
    )
    return Reply(200, states)


def set_maintenance(context: ApiContext, call: Call[NoQuery, Maintenance | None]) -> Reply:
    """Put the node into maintenance."""
    reason = call.body.reason if call.body is not None else None
    return _maintain(context, call, maintenance=True, reason=reason)


def clear_maintenance(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Take the node out of maintenance."""
    return _maintain(context, call, maintenance=False, reason=None)


def _maintain(context: ApiContext, call: Call[NoQuery, Any], *, maintenance: bool, reason: str | None) -> Reply:
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        attributes = {name: value for name, value in node.attributes.items() if name != "maintenance_reason"}
        if reason is not None:
            attributes["maintenance_reason"] = reason
        tx.nodes.update(msgspec.structs.replace(node, maintenance=maintenance, attributes=attributes))

    context.store.write(work)
    return Reply(202)


def validate_node(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Say whether the driver could work with what the node says of itself; asks no BMC."""
    node = _get(context, call)
    driver = context.drivers.get(node.driver)
    problem = driver.validate(node) if driver is not None else f"the driver {node.driver} is not enabled here"
    ours = InterfaceCheck(result=problem is None, reason=problem)
    absent = InterfaceCheck(result=None, reason="not supported")
    checks = dict.fromkeys(NodeValidation.__struct_fields__, absent)
    return Reply(200, NodeValidation(**checks | {"inspect": ours, "management": ours, "power": ours}))


def get_traits(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """List the traits of a node."""
    return Reply(200, Traits(traits=_get(context, call).attributes.get("traits", [])))


def _get(context: ApiContext, call: Call[NoQuery, None]) -> Node:
    ident = node_ident(call)
    return context.store.read(lambda tx: tx.nodes.get(ident))
