"""Time-out: the BMC, the machine or a hook had its time, and more."""

from __future__ import annotations

from datetime import UTC, datetime

from ferroscope.core.delivery import Fail, Outcome
from ferroscope.core.reasons import Reason
from ferroscope.core.states import State
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly
from ferroscope.worker.refused_calls import amended


def time_out(context: TaskContext) -> Outcome:
    """Power off and fail, saying who took too long at what."""
    power_off_quietly(context)
    return amended(context, _reason(context))


def _reason(context: TaskContext) -> Fail:
    """Return the failure of an inspection whose present phase has taken too long."""
    seconds = f"{context.settings.inspector.timeout:g} s"
    if context.before.state is State.STARTING:
        return Fail(Reason.START_TIMEOUT, f"the BMC did not start the machine within {seconds}")
    if context.before.state is State.WAITING:
        since = context.inspection.waiting_since if context.inspection is not None else None
        when = "" if since is None else f" at {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
        return Fail(Reason.TIMEOUT, f"no callback within {seconds} since the power-on{when}")
    return Fail(Reason.PROCESSING_TIMEOUT, f"processing took longer than {seconds}")
