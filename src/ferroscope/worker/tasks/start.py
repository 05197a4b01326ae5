"""Start an inspection: power off, let the next boot be the ramdisk's, power on; then wait.

A machine that must not be powered off is rebooted instead, where it is on.

Or, where the BMC is asked instead of a ramdisk, read the hardware from it and go on at once.

Reentrant: a rerun reads the real power state, and where the power-on of an earlier attempt took
effect the machine is left alone, so that it is not rebooted twice.
"""

from __future__ import annotations

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.core.boot import Boot
from ferroscope.core.delivery import Next, Outcome, Retry
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.worker import boot, out_of_band
from ferroscope.worker.bmc_addresses import resolve
from ferroscope.worker.boot_gate import BootGate
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import boot_from_network, ensure_power
from ferroscope.worker.staying_on import REBOOT, earlier_reboot, reboot, seen, stays_on
from ferroscope.worker.throttle import RebootThrottle, ThrottledError

_POWER_ON = "power on"


class StartTask:
    """The task of ``inspect``; ``throttle`` spreads the power-ons, ``gate`` lets the machine reach its boot server."""

    def __init__(self, throttle: RebootThrottle, gate: BootGate) -> None:
        self._throttle = throttle
        self._gate = gate

    def __call__(self, context: TaskContext) -> Outcome:
        """Boot the ramdisk; where the operator boots it, only note that we wait."""
        context.bmc_addresses = resolve(context.node, seconds=context.settings.drivers.command_timeout)
        way = boot.how(context)
        if way is Boot.OPERATOR:
            context.note("unmanaged", "the operator boots the ramdisk")
            return Next(Event.WAIT)
        if way is Boot.OUT_OF_BAND:
            return out_of_band.inspect(context)
        boot.note(context, way)
        early = Next(Event.WAIT) if _is_powered_on(context) else earlier_reboot(context, way)
        if isinstance(early, Next):
            context.note("already on", "an earlier attempt powered it on")
            context.node.power_state = Power.ON
        if early is not None:
            return early
        if not context.intended(_POWER_ON):
            out_of_band.prepare(context)  # the gate opens for the ports that this makes
            if way is Boot.NETWORK and (early := self._gate(context)) is not None:
                return early
            self._prepare(context, way)
        # Else both were done before the intent, and an earlier power-on may still be on its way:
        # a machine that was powered off now would boot twice. (A reboot is prepared again: see ``staying_on``.)
        try:
            self._power_on(context)
        except ThrottledError as exc:
            return Retry(exc.after, Reason.THROTTLED, str(exc), counted=False)
        return Next(Event.WAIT)

    def _prepare(self, context: TaskContext, way: Boot) -> None:
        """All that the machine needs before the power-on; harmless to repeat."""
        if not stays_on(context.node):
            ensure_power(context, Power.OFF)
        if way is Boot.VIRTUAL_MEDIA:
            boot.insert(context)
        else:
            boot.eject_leftover(context)
            boot_from_network(context)

    def _power_on(self, context: TaskContext) -> None:
        with self._throttle.turn(context) as turn:
            reboots = stays_on(context.node) and context.driver().get_power(context.node) is Power.ON
            try:
                if reboots:
                    context.intend(REBOOT, turn.fence, seen=seen(context))
                else:
                    context.intend(_POWER_ON, turn.fence)
            except LeaseLostError as exc:
                raise ThrottledError(0.0) from exc
            if reboots:
                reboot(context, confirm=turn.confirm)
            else:
                ensure_power(context, Power.ON, confirm=turn.confirm)


def _is_powered_on(context: TaskContext) -> bool:
    # The intent is recorded when the machine is off, so if it is on now, we did it.
    return context.intended(_POWER_ON) and context.driver().get_power(context.node) is Power.ON
