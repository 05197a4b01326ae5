"""Start an inspection: power off, let the next boot be the ramdisk's, power on; then wait.

A machine that must not be powered off is rebooted instead, where it is on.

Or, where the BMC is asked instead of a ramdisk, read the hardware from it and go on at once.

Reentrant: a rerun reads the real power state, and where the power-on of an earlier attempt took
effect the machine is left alone, so that it is not rebooted twice.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Transaction
from ferroscope.core.boot import Boot
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.core.delivery import Next, Outcome, Retry
from ferroscope.core.model import Lease, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.worker import boot, out_of_band
from ferroscope.worker.bmc_addresses import resolve
from ferroscope.worker.boot import REBOOT, boot_from_network, earlier_reboot, ensure_power, reboot, seen, stays_on
from ferroscope.worker.context import TaskContext
from ferroscope.worker.throttle import RebootThrottle, ThrottledError

# Before a machine is powered on, the open PXE filter has to let it pass; that takes a moment.
#
# The node's state is saved when the inspection is asked for, and the filter hears of it at once; so
# most of the time there is nothing to wait for. Where no filter takes part, nothing is waited for.

# In seconds: between two looks, for how long the thread itself waits, when it looks again after that.
_LOOK_EVERY: Final = 0.02
_PATIENCE: Final = 0.3
_AGAIN: Final = 0.25
_REMEMBERED: Final = 10_000
# So many seconds after no filter was known at all none is looked for again: the first of a service reads everything.
_ABSENT: Final = 1.0
# A network whose filter ended without saying goodbye, this long ago, is no longer waited for.
_GIVEN_UP: Final = 300.0


class _Seen(msgspec.Struct, frozen=True):
    """The networks with a PXE filter, those not ready; ``known``: there ever was one.

    ``strict`` are those that let no machine pass of which they know no port, if this one has none.
    """

    pxe_filters: list[str]
    behind: list[str]
    strict: list[str]
    known: bool


class PxeFilterWait:
    """``timeout`` in seconds from the first look at the filter for an inspection; 0: never wait.

    Each process counts for itself: what an inspection has waited for us before is not the filter's time.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._waiting: dict[str, float] = {}  # by inspection, since when by the monotonic clock
        self._look_at = 0.0  # by the monotonic clock

    def __call__(self, context: TaskContext) -> Retry | None:
        """Return None when the machine may be powered on; the outcome of the attempt where it is too early."""
        now = context.clock.monotonic()
        if not self._timeout or now < self._look_at:
            return None
        until = now + _PATIENCE
        inspection = context.request.inspection or ""
        since = self._waiting.pop(inspection, now)
        while (seen := self._look(context)).behind:
            names = ", ".join(seen.behind)
            if context.clock.monotonic() - since >= self._timeout:
                message = f"powered on although the PXE filter is not open, or is behind: {names}"
                context.note("pxe filter", message, severity=Severity.WARNING, reason=Reason.PXE_FILTER_CLOSED)
                return None
            if context.clock.monotonic() >= until:
                if len(self._waiting) >= _REMEMBERED:
                    self._waiting.clear()
                self._waiting[inspection] = since
                return Retry(_AGAIN, Reason.PXE_FILTER_CLOSED, f"waits for the PXE filter of {names}", counted=False)
            context.pause(_LOOK_EVERY)
        if not seen.known:
            self._look_at = now + _ABSENT
        if seen.strict:
            message = (
                f"the node has no port, and the PXE filter of {', '.join(seen.strict)} lets known machines pass only: "
                "add a port, or set [pxe_filter] unknown_hosts = allow"
            )
            context.note("pxe filter", message, severity=Severity.WARNING, reason=Reason.PXE_FILTER_CLOSED)
        elif seen.pxe_filters:
            context.note("pxe filter", f"the open filter lets its MACs pass: {', '.join(seen.pxe_filters)}")
        return None

    def _look(self, context: TaskContext) -> _Seen:
        node = context.node.uuid

        def work(tx: Transaction) -> _Seen:
            known = tx.leases.list(LEASE_PREFIX)
            leases = [lease for lease in known if _takes_part(lease, tx.now)]
            newest = tx.macs.newest(node=node) if leases else 0
            return _Seen(
                pxe_filters=[_said(lease) for lease in leases],
                behind=[_network(lease) for lease in leases if not _lets_pass(lease, newest)],
                strict=[_network(lease) for lease in leases if not newest and not decode_record(lease.data).unknown],
                known=bool(known),
            )

        return context.store.read(work)


def _takes_part(lease: Lease, now: float) -> bool:
    return lease.holder is not None and lease.expires_at > now - _GIVEN_UP


def _lets_pass(lease: Lease, seq: int) -> bool:
    return lease.remaining > 0 and decode_record(lease.data).has_applied(seq)


def _network(lease: Lease) -> str:
    return lease.name.removeprefix(LEASE_PREFIX)


def _said(lease: Lease) -> str:
    return f"{_network(lease)} on {decode_record(lease.data).host} in epoch {lease.epoch}"


_POWER_ON = "power on"


class StartTask:
    """The task of ``inspect``; ``throttle`` spreads the power-ons, ``pxe_filter`` waits until it may boot."""

    def __init__(self, throttle: RebootThrottle, pxe_filter: PxeFilterWait) -> None:
        self._throttle = throttle
        self._pxe_filter = pxe_filter

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
            out_of_band.prepare(context)  # the filter opens for the ports that this makes
            if way is Boot.NETWORK and (early := self._pxe_filter(context)) is not None:
                return early
            self._prepare(context, way)
        # Else both were done before the intent, and an earlier power-on may still be on its way:
        # a machine that was powered off now would boot twice. (A reboot is prepared again: see ``boot.py``.)
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
