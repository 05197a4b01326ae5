"""Abort: power the machine off and end its inspection in error, by the operator's will; or for a failure."""

from __future__ import annotations

from ferroscope.core.delivery import Fail, Outcome
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly

_REASONS = frozenset(Reason)


def abort(context: TaskContext) -> Outcome:
    """Power off where an inspection was under way, not where stored data was; in any case end it."""
    _power_off(context)
    return Fail(Reason.ABORTED, "the inspection was aborted")


def fail(context: TaskContext) -> Outcome:
    """End it as the payload says: ``reason`` and ``message`` are those of what failed where no BMC is asked."""
    _power_off(context)
    said = str(context.request.payload.get("reason"))
    reason = Reason(said) if said in _REASONS else Reason.INTERNAL
    return Fail(reason, str(context.request.payload.get("message", "the inspection failed")))


def _power_off(context: TaskContext) -> None:
    if context.before.state in MACHINE:
        power_off_quietly(context)
