"""PUT states/power: queue a power command; a worker carries it out. Source: the Bare Metal API reference."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Limit, PowerState
from ferroscope.contracts.bmc import (
    RESULTS,
    SOFT_POWER_OFF,
    SOFT_REBOOT,
    Bmc,
    Power,
    SoftPower,
)
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.db import Transaction

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
