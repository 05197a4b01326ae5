"""Finish: the data is safe, so power the machine off. A BMC that does not obey fails nothing."""

from __future__ import annotations

from ferroscope.core.delivery import Done, Outcome
from ferroscope.core.states import State
from ferroscope.worker.context import TaskContext
from ferroscope.worker.power import power_off_quietly


def finish(context: TaskContext) -> Outcome:
    """Power off after an inspection; processing stored data again never touches the machine."""
    if context.before.state is State.PROCESSING:
        power_off_quietly(context)
    return Done()
