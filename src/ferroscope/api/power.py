"""PUT states/power: queue a power command; a worker carries it out and notes the result.

Source: the Bare Metal API reference. Soft power off and soft reboot need an agent or ACPI
support that no driver here has, so they are refused rather than quietly made hard.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.documented import REBOOT, Limit, PowerState
from ferroscope.api.errors import BadRequestError, NotAcceptableError, StateConflictError
from ferroscope.api.idents import node_ident
from ferroscope.api.scalars import shown
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.store import Transaction
from ferroscope.core.states import Event

_RESULTS: Final = {str(Power.ON): Power.ON, str(Power.OFF): Power.OFF, REBOOT: Power.ON}
_SOFT: Final = frozenset({"soft power off", "soft rebooting"})
_SOFT_SINCE: Final = 27


class PowerTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``timeout`` is accepted for compatibility; the driver's own time-out applies."""

    target: PowerState
    timeout: Limit | None = None


def set_power_state(context: ApiContext, call: Call[NoQuery, PowerTarget]) -> Reply:
    """Ask for a power state; follow ``power_state`` and ``target_power_state`` to see it come."""
    target = _target(call.body, call.minor)
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        if target == Power.OFF and node.attributes.get("disable_power_off"):
            raise StateConflictError(f"Node {node.uuid} must not be powered off: disable_power_off is set on it.")
        transition.submit(tx, node, Event.SET_POWER, process=context.process, payload={"target": target})
        tx.nodes.update(msgspec.structs.replace(node, target_power_state=str(_RESULTS[target])))

    context.store.write(work)
    return Reply(202, headers={"Location": f"{call.url}/v1/nodes/{call.node}/states"})


def _target(body: PowerTarget, minor: int) -> str:
    if (body.target in _SOFT or body.timeout) and minor < _SOFT_SINCE:
        raise NotAcceptableError(f"Soft power states and timeout need API version 1.{_SOFT_SINCE}.")
    if body.timeout is not None and body.timeout < 1:
        raise BadRequestError(f"timeout must be a positive number of seconds; it was {body.timeout}.")
    if body.target not in _RESULTS:
        known = ", ".join(sorted(_RESULTS))
        raise BadRequestError(f"The power state {shown(body.target)} cannot be asked for here; known: {known}.")
    return body.target
