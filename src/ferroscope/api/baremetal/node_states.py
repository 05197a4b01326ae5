"""Subresources of a node: states, provision, power, boot device, maintenance and validation.

Source: the Bare Metal API reference.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope import transition
from ferroscope.api.baremetal import drivers
from ferroscope.api.baremetal.node_fields import NodeStates, old_provision_state, shown_to
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.http import schemas
from ferroscope.api.http.context import ApiContext, ApiServices
from ferroscope.api.http.decoding import boolean, node_ident, shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Device, Limit, PowerState, iso
from ferroscope.boot_config import ipxe
from ferroscope.contracts.bmc import (
    RESULTS,
    SOFT_POWER_OFF,
    SOFT_REBOOT,
    Bmc,
    BootDevice,
    BootDevices,
    Power,
    SoftPower,
)
from ferroscope.core import ironic_nodes
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.delivery import is_inspectable
from ferroscope.core.interfaces import NO_INSPECT
from ferroscope.core.model import Node
from ferroscope.core.secrets import for_validation
from ferroscope.core.states import ACTIVE, RESTING_VERBS, Event, Provision, State
from ferroscope.db.transaction import Transaction

_RAID_SINCE = 12
_BOOT_MODE_SINCE = 75


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/nodes/{node}/maintenance; the body is optional. ``until``: when the maintenance ends by itself."""

    reason: str | None = None
    until: Annotated[str, msgspec.Meta(max_length=40, description="ISO 8601; UTC unless it has a zone.")] | None = None


def get_states(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the states of a node only."""
    node = _get(context, call)
    raid: dict[str, Any] | UnsetType = {} if call.minor >= _RAID_SINCE else UNSET
    boot = None if call.minor >= _BOOT_MODE_SINCE else UNSET
    shown = shown_to(context.access.policy, call.identity, node, {"last_error": node.last_error})
    states = NodeStates(
        console_enabled=False,
        last_error=shown["last_error"],
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


def set_maintenance(context: ApiContext, call: RouteCall[NoQuery, Maintenance | None]) -> Reply:
    """Put the node into maintenance."""
    reason, until = (call.body.reason, call.body.until) if call.body is not None else (None, None)
    return _maintain(context, call, maintenance=True, reason=reason, until=until)


def clear_maintenance(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Take the node out of maintenance."""
    return _maintain(context, call, maintenance=False, reason=None)


def _maintain(
    context: ApiContext,
    call: RouteCall[NoQuery, Any],
    *,
    maintenance: bool,
    reason: str | None,
    until: str | None = None,
) -> Reply:
    ident, ends = node_ident(call), None if until is None else _moment(until)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        attributes = {name: value for name, value in node.attributes.items() if name not in MAINTENANCE}
        if reason is not None:
            attributes["maintenance_reason"] = reason
        if ends is not None:
            if ends <= tx.now:
                raise BadRequestError(f"Invalid until {shown_value(until)}: it is not in the future.")
            attributes["maintenance_until"] = iso(ends)
        tx.nodes.update(msgspec.structs.replace(node, maintenance=maintenance, attributes=attributes))

    context.data.store.write(work)
    return Reply(202)


MAINTENANCE: Final = ("maintenance_reason", "maintenance_until")
"""Details of a maintenance, in ``Node.attributes``."""


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        # The last hours of the year 9999 of some zones cannot be written in UTC.
        return (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequestError(
            f"Invalid until {shown_value(text)}: expected a time such as 2026-12-24T18:00:00Z."
        ) from None


def validate_node(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Validate the node's driver_info; does not connect to the BMC."""
    checks = drivers.interface_checks(context.settings, _get(context, call), context.services.drivers)
    return Reply(200, drivers.NodeValidation(**checks))


def _get(context: ApiContext, call: RouteCall[NoQuery, None]) -> Node:
    ident = node_ident(call)
    return context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)


# The boot device of a node: PUT queues the command; GET returns what was requested last, else what the BMC reported
# when the node was verified: the api never connects to a BMC.
#
# Source: the Bare Metal API reference.


class BootDeviceTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT management/boot_device."""

    boot_device: Device
    persistent: bool | str | None = None


class BootDeviceView(msgspec.Struct, frozen=True):
    """The boot device; None if it is unknown."""

    boot_device: str | None
    persistent: bool | None


class SupportedBootDevices(msgspec.Struct, frozen=True):
    """GET management/boot_device/supported."""

    supported_boot_devices: list[str]


def set_boot_device(context: ApiContext, call: RouteCall[NoQuery, BootDeviceTarget]) -> Reply:
    """Set the boot device, for the next boot or persistently."""
    device = call.body.boot_device
    persistent = boolean("persistent", call.body.persistent or False)
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        supported = _boot_devices(context.services.drivers.get(node.driver))
        if device not in supported:
            raise BadRequestError(f"Invalid boot device {device[:80]} specified. Supported: {', '.join(supported)}.")
        target = {"boot_device": device, "persistent": persistent}
        transition.submit(tx, node, Event.SET_BOOT_DEVICE, process=context.process.name, payload=target)
        tx.nodes.update(msgspec.structs.replace(node, internal=node.internal | {"boot_device": target}))

    context.data.store.write(work)
    return Reply(204)


def get_boot_device(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the boot device: the last requested one, else what the driver says."""
    node = _get(context, call)
    driver = context.services.drivers.get(node.driver)
    default = driver.default_boot_device if isinstance(driver, BootDevices) else None
    device = node.internal.get("boot_device") or node.internal.get("reported_boot_device")
    if device is None:
        device = {"boot_device": default, "persistent": None if default is None else False}
    return Reply(200, BootDeviceView(boot_device=device.get("boot_device"), persistent=device.get("persistent")))


def get_supported_boot_devices(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the boot devices that the node's driver supports."""
    node = _get(context, call)
    return Reply(
        200, SupportedBootDevices(supported_boot_devices=_boot_devices(context.services.drivers.get(node.driver)))
    )


def _boot_devices(driver: Bmc | None) -> list[str]:
    return [str(device) for device in (driver.boot_devices if isinstance(driver, BootDevices) else BootDevice)]


# PUT states/power: queue a power command; a worker carries it out and stores the result.
#
# Source: the Bare Metal API reference.

_SOFT: Final = frozenset({SOFT_POWER_OFF, SOFT_REBOOT})
_SOFT_SINCE: Final = 27


class PowerTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timeout``: seconds that the change may take, instead of the configured ones."""

    target: PowerState
    timeout: Limit | None = None


def set_power_state(context: ApiContext, call: RouteCall[NoQuery, PowerTarget]) -> Reply:
    """Request a power state; ``power_state`` and ``target_power_state`` show the progress."""
    target, timeout = call.body.target, call.body.timeout
    if (target in _SOFT or timeout) and call.minor < _SOFT_SINCE:
        raise NotAcceptableError(f"Soft power states and timeout require API version 1.{_SOFT_SINCE}.")
    if timeout is not None and timeout < 1:
        raise BadRequestError("timeout has to be positive integer")
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        _check_target(node, target, context.services.drivers.get(node.driver))
        payload = {"target": target} if timeout is None else {"target": target, "timeout": timeout}
        transition.submit(tx, node, Event.SET_POWER, process=context.process.name, payload=payload)
        tx.nodes.update(msgspec.structs.replace(node, target_power_state=str(RESULTS[target])))

    context.data.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.path['node']}/states"})


def _check_target(node: Node, target: str, driver: Bmc | None) -> None:
    """Raise an error in the words of the Bare Metal service if the power state cannot be requested for this node."""
    if target not in RESULTS:
        raise BadRequestError(
            f'The requested action "{target[:80]}" can not be performed on node "{node.uuid}" while it is in state '
            f'"{node.power_state}". Power states: {", ".join(RESULTS)}.'
        )
    if target in _SOFT and driver is not None and not isinstance(driver, SoftPower):
        raise BadRequestError(f"The driver {node.driver} does not support the power state, {target}")
    if target in (Power.OFF, SOFT_POWER_OFF) and node.attributes.get("disable_power_off"):
        raise StateConflictError(f"Failed to set node power state to {target}: disable_power_off is set.")


# PUT states/provision: manage, provide, inspect, abort.
#
# Each verb changes the state and queues its request in one transaction. An illegal verb gets 409, with the current
# state and the allowed verbs. Source: the Bare Metal API reference.


class ProvisionTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The verb: manage, provide, inspect or abort."""

    target: schemas.Verb


Verb = Callable[[ApiContext, Transaction, Node], None]

_SINCE: Final = {"manage": 4, "provide": 4, "inspect": 6, "abort": 13}
_ABORT_WAIT_SINCE: Final = 41


def set_provision_state(context: ApiContext, call: RouteCall[NoQuery, ProvisionTarget]) -> Reply:
    """Request a provision state; the node's ``provision_state`` shows the progress."""
    target, ident = call.body.target, node_ident(call)
    if (attached := context.services.attached) is not None:
        if target in RESTING_VERBS:
            attached.check_change(f"The target {target}")
        if target == "inspect":
            attached.prepare(context, ident)
    verb = _VERBS.get(target)
    if verb is None:
        raise BadRequestError(
            f"Unsupported target {shown_value(target)}: it must be one of {', '.join(sorted(_VERBS))}."
        )
    if call.minor < _SINCE[target]:
        raise NotAcceptableError(f"The target {target} requires API version 1.{_SINCE[target]}.")

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True, ahead=tx.macs.ahead if target == "inspect" else None)
        if target == "abort" and node.state is State.WAITING and call.minor < _ABORT_WAIT_SINCE:
            raise NotAcceptableError(f"Aborting an inspection requires API version 1.{_ABORT_WAIT_SINCE}.")
        verb(context, tx, node)

    context.data.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.path['node']}/states"})


def allowed_verbs(node: Node) -> list[str]:
    """Return the verbs that are allowed in the node's state."""
    if node.inbox:
        return ["abort"] if node.state in ACTIVE else []
    # Those of a node of an attached Ironic are sent there.
    resting = {} if ironic_nodes.ATTACHED in node.internal else RESTING_VERBS
    verbs = [verb for verb, moves in resting.items() if node.provision_state in moves]
    # Only the Introspection API restarts an inspection; Ironic has no such verb in "inspect wait".
    if is_inspectable(node) and node.state is not State.WAITING:
        verbs.append("inspect")
    if node.state in ACTIVE:
        verbs.append("abort")
    return sorted(verbs)


def _manage(context: ApiContext, tx: Transaction, node: Node) -> None:
    target = _resting_target(node, "manage")
    if target is Provision.VERIFYING:
        transition.submit(tx, node, Event.VERIFY, process=context.process.name)
        transition.rest(tx, node, target, target=str(Provision.MANAGEABLE))
    else:
        transition.rest(tx, node, target)


def _provide(_context: ApiContext, tx: Transaction, node: Node) -> None:
    target = _resting_target(node, "provide")
    if node.attributes.get("retired"):
        raise BadRequestError(f"The providing operation can't be performed on node {node.uuid} because it is retired.")
    transition.rest(tx, node, target)


def _resting_target(node: Node, verb: str) -> Provision:
    target = RESTING_VERBS[verb].get(node.provision_state)
    if target is None or node.inbox or node.state in ACTIVE:
        raise _refusal(node, verb)
    return target


def _inspect(context: ApiContext, tx: Transaction, node: Node) -> None:
    if "inspect" not in allowed_verbs(node):
        raise _refusal(node, "inspect")
    if node.attributes.get("inspect_interface") == NO_INSPECT:
        raise BadRequestError(drivers.not_supported(node, "inspect"))
    start(context, tx, node)


def start(context: ApiContext, tx: Transaction, node: Node, *, manage_boot: bool = True) -> None:
    """Start an inspection, or restart it while it waits; one whose machine we boot gets a secret for its callback."""
    delivery = None
    if manage_boot:
        check_power(context.services, node)
        delivery = ipxe.delivery(context.settings, node, context.services.drivers.get(node.driver))
        if delivery is Delivery.BOOT_SCRIPT and not ipxe.has_macs(tx, node):
            delivery = Delivery.NONE  # the script is found by a MAC address
    transition.start(
        tx,
        node,
        inspection=context.process.new_uuid(),
        process=context.process.name,
        manage_boot=manage_boot,
        secret=context.process.new_token() if delivery is not None else None,
        secret_delivery=delivery,
    )


def check_power(services: ApiServices, node: Node) -> None:
    """Raise ``BadRequestError`` if the node's driver_info is invalid; does not connect to the BMC.

    A driver that is not enabled in this process may be enabled in workers, which check it themselves.
    """
    driver = services.drivers.get(node.driver)
    problem = driver.validate(for_validation(node)) if driver is not None and node.state is not State.STARTING else None
    if problem is not None:
        raise BadRequestError(f"Node {node.uuid} cannot be inspected: {problem}.")


def abort(context: ApiContext, tx: Transaction, node: Node) -> None:
    """Queue an abort; ``StateConflictError`` if no inspection is in progress.

    The state table also allows it in ``finished``, for an abort that was accepted before the inspection ended.
    """
    if node.state not in ACTIVE:
        raise _refusal(node, "abort")
    transition.submit(tx, node, Event.ABORT, process=context.process.name)


def _refusal(node: Node, verb: str) -> StateConflictError:
    if node.inbox:
        return StateConflictError(
            f"Node {node.uuid} is in the inbox: {verb} is not possible; approve it first: "
            f"POST /v1/nodes/{node.uuid}/approve."
        )
    if node.state not in ACTIVE and ironic_nodes.ATTACHED in node.internal and (reason := ironic_nodes.refusal(node)):
        return StateConflictError(f"{reason[:1].upper()}{reason[1:]}.")
    options = ", ".join(allowed_verbs(node)) or "nothing until it ends"
    return StateConflictError(
        f"Node {node.uuid} is {node.provision_state!s} (inspection: {node.state}): {verb} is not possible; "
        f"allowed now: {options}."
    )


_VERBS: Final[dict[str, Verb]] = {"manage": _manage, "provide": _provide, "inspect": _inspect, "abort": abort}
