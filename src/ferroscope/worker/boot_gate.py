"""Before a machine is powered on, the open PXE gate has to let it pass; that takes a moment.

The node's state is saved when the inspection is asked for, and the gate hears of it at once; so
most of the time there is nothing to wait for. Where no gate takes part, nothing is waited for.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.store import Transaction
from ferroscope.core.boot_macs import LEASE_PREFIX, decode_record
from ferroscope.core.delivery import Retry
from ferroscope.core.model import Lease, Severity
from ferroscope.core.reasons import Reason
from ferroscope.worker.context import TaskContext

# In seconds: between two looks, for how long the thread itself waits, when it looks again after that.
_LOOK_EVERY: Final = 0.02
_PATIENCE: Final = 0.3
_AGAIN: Final = 0.25
_REMEMBERED: Final = 10_000
# So many seconds after no gate was known at all none is looked for again: the first of a service reads everything.
_ABSENT: Final = 1.0
# A network whose gate ended without saying goodbye, this long ago, is no longer waited for.
_GIVEN_UP: Final = 300.0


class _Seen(msgspec.Struct, frozen=True):
    """The networks with a gate, those not ready; ``known``: there ever was one.

    ``strict`` are those that let no machine pass of which they know no port, if this one has none.
    """

    gates: list[str]
    behind: list[str]
    strict: list[str]
    known: bool


class BootGate:
    """``timeout`` in seconds from the first look at the gate for an inspection; 0: never wait.

    Each process counts for itself: what an inspection has waited for us before is not the gate's time.
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
                message = f"powered on although the PXE gate is not open, or is behind: {names}"
                context.note("pxe gate", message, severity=Severity.WARNING, reason=Reason.GATE_CLOSED)
                return None
            if context.clock.monotonic() >= until:
                if len(self._waiting) >= _REMEMBERED:
                    self._waiting.clear()
                self._waiting[inspection] = since
                return Retry(_AGAIN, Reason.GATE_CLOSED, f"waits for the PXE gate of {names}", counted=False)
            context.pause(_LOOK_EVERY)
        if not seen.known:
            self._look_at = now + _ABSENT
        if seen.strict:
            message = (
                f"the node has no port, and the PXE gate of {', '.join(seen.strict)} lets known machines pass only: "
                "add a port, or set [pxe_filter] unknown_hosts = allow"
            )
            context.note("pxe gate", message, severity=Severity.WARNING, reason=Reason.GATE_CLOSED)
        elif seen.gates:
            context.note("pxe gate", f"the open gate lets its MACs pass: {', '.join(seen.gates)}")
        return None

    def _look(self, context: TaskContext) -> _Seen:
        node = context.node.uuid

        def work(tx: Transaction) -> _Seen:
            known = tx.leases.list(LEASE_PREFIX)
            leases = [lease for lease in known if _takes_part(lease, tx.now)]
            newest = tx.macs.newest(node=node) if leases else 0
            return _Seen(
                gates=[_said(lease) for lease in leases],
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
