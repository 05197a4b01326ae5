"""Abort: power the machine off and end its inspection in error, by the operator's will."""

from __future__ import annotations

from ferroscope.domain.outcome import Fail, Outcome
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import ACTIVE, State
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly


def run(context: TaskContext) -> Outcome:
    """Power off where an inspection was under way, not where stored data was; in any case end it."""
    if context.before.state in ACTIVE and context.before.state is not State.REAPPLYING:
        power_off_quietly(context)
    return Fail(Reason.ABORTED, "the inspection was aborted")
