"""One attempt of one request: whatever its task does, what comes of it is an outcome.

Only a claim that was lost goes on as an error: then nothing may be written any more. Nothing is
committed here; ``loop`` does that with the outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from ferroscope.contracts.errors import BmcError, ClaimLostError, StoreUnavailableError
from ferroscope.core.delivery import Drop, Fail, Outcome, Retry
from ferroscope.core.model import Request
from ferroscope.core.reasons import Reason
from ferroscope.core.states import Event
from ferroscope.worker.context import StoppedError, SupersededError, TaskContext

Task = Callable[[TaskContext], Outcome]

_log = structlog.get_logger(__name__)


def attempt(task: Task, context: TaskContext, *, rerun: bool) -> Outcome:
    """Run the task; ``ClaimLostError``. What was the last attempt and would be tried again is a failure."""
    if rerun:
        context.note("delivered again", f"attempt {context.request.attempt} of {context.request.event}")
    outcome = _run(task, context)
    if isinstance(outcome, Retry) and outcome.counted and _is_last(context):
        return Fail(outcome.reason, f"{outcome.message}; gave up after {context.request.attempt} attempts")
    return outcome


def again(context: TaskContext, reason: Reason, message: str) -> Retry:
    """Return that the request is to be tried again, after the usual while."""
    return Retry(context.settings.worker.retry_delay, reason, message)


def later(context: TaskContext, error: BmcError) -> Retry:
    """Return that the BMC is to be asked again: twice as late with each attempt, and not before it is left alone."""
    pause = context.settings.worker.retry_delay * 2.0 ** (context.request.attempt - 1)
    return Retry(max(pause, context.watch.pause()), error.reason, str(error))


def interrupted() -> Retry:
    """Return that the process was asked to stop: another one goes on at once, and no attempt is counted."""
    return Retry(0.0, Reason.INTERRUPTED, "the worker was asked to stop", counted=False)


def without_store(context: TaskContext, error: StoreUnavailableError) -> Retry:
    """Return that it goes on when the database is back: no fault of the inspection's, whose time-out is its end."""
    _log.warning("the database is unavailable to a task", request=context.request.event, error=str(error))
    delay = context.settings.worker.retry_delay
    return Retry(delay, Reason.STORE_UNAVAILABLE, str(error), counted=False)


def aborted(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether somebody wants the inspection aborted whose data has just been processed."""
    if context.request.event not in (Event.CONTINUE, Event.REAPPLY):
        return False
    return any(other.event is Event.ABORT and other.inspection == context.request.inspection for other in pending)


def contradicted(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether a different callback came while the machine of a processed one was powered off."""
    mine = context.request
    return mine.event is Event.FINISH and any(
        other.event is Event.CONTINUE and other.inspection == mine.inspection and other.id != mine.id
        for other in pending
    )


def _run(task: Task, context: TaskContext) -> Outcome:
    event = context.request.event
    try:
        return task(context)
    except StoppedError:
        return interrupted()
    except BmcError as exc:
        return later(context, exc) if exc.transient else Fail(exc.reason, str(exc))
    except SupersededError as exc:
        return Drop(Reason.STALE_REQUEST, str(exc))
    except ClaimLostError:
        raise
    except StoreUnavailableError as exc:
        return without_store(context, exc)
    except Exception as exc:  # noqa: BLE001  # the boundary: a task's bug must not take the worker along
        _log.exception("task failed", request=event, node=context.node.uuid)
        return again(context, Reason.INTERNAL, f"{type(exc).__name__} in {event}")


def _is_last(context: TaskContext) -> bool:
    return context.request.attempt >= context.settings.worker.max_attempts
