"""Abort: power the machine off and end its inspection in error, by the operator's will."""

from __future__ import annotations

from ferroscope.domain.outcome import Fail, Outcome
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import ACTIVE
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly


def run(context: TaskContext) -> Outcome:
    """Power off where an inspection was under way, in any case end it."""
    if context.before.state in ACTIVE:
        power_off_quietly(context)
    return Fail(Reason.ABORTED, "the inspection was aborted")
