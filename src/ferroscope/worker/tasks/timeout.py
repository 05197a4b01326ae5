"""Time-out: the machine did not call back, or nobody carried its request out, for too long."""

from __future__ import annotations

from ferroscope.domain.outcome import Fail, Outcome
from ferroscope.domain.reasons import Reason
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly
from ferroscope.worker.refused_calls import amended


def run(context: TaskContext) -> Outcome:
    """Power off and fail, saying in which state it stood for how long."""
    power_off_quietly(context)
    seconds = context.settings.inspector.timeout
    failure = Fail(Reason.TIMEOUT, f"the inspection was {context.before.state} for more than {seconds:g} s")
    return amended(context, failure)
