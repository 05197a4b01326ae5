"""Runs the task of an attempt: whatever it does or raises, an outcome comes of it.

Only the loss of the claim remains an error: after that nothing may be written. Nothing is committed here; ``loop``
commits the outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.errors import BmcError, ClaimLostError, StoreUnavailableError
from ferroscope.core.delivery import Done, Drop, Fail, Outcome, Retry, Run, exhausted
from ferroscope.core.losses import counted, described
from ferroscope.core.model import Severity
from ferroscope.core.reasons import Reason
from ferroscope.worker.attempt import StoppedError, SupersededError
from ferroscope.worker.context import TaskContext

Task = Callable[[TaskContext], Outcome]

# Reasons to wait for an attached Ironic.
WAITS: Final = frozenset({Reason.REGISTRY_UNAVAILABLE, Reason.NODE_LOCKED})

_log = structlog.get_logger(__name__)


def run_task(task: Task, context: TaskContext) -> Outcome:
    """Run the task; ``ClaimLostError``. A retry after the last attempt becomes a failure."""
    request = context.request
    again = described(request)
    if context.attempt.rerun:
        context.note("delivered again", again)
    outcome = _run(task, context)
    if isinstance(outcome, Retry) and outcome.reason in WAITS:  # which may take hours, with many deliveries
        context.journal.entries = [one for one in context.journal.entries if one[1].message != again]
    tried = counted(request)
    if isinstance(outcome, Retry) and outcome.counted and tried >= context.settings.worker.max_attempts:
        ending = exhausted(context.before, msgspec.structs.replace(request, attempt=request.attempt + 1))
        if isinstance(ending, Run):
            return leave_undone(context, f"{outcome.message}; {ending.undone}", outcome.reason)
        if ending.reason is not Reason.ATTEMPTS_EXHAUSTED:
            return ending
        return Fail(outcome.reason, f"{outcome.message}; gave up after {tried} attempts")
    return outcome


def move(_context: TaskContext) -> Outcome:
    """Do nothing: an event without a task only moves the state, as a restored row or another release may request."""
    return Done()


def leave_undone(context: TaskContext, what: str, reason: Reason) -> Done:
    """Take the transition although its task did not succeed: what was processed is kept, and the rest is recorded."""
    context.note("not carried out", what, severity=Severity.WARNING, reason=reason)
    return Done()


def _run(task: Task, context: TaskContext) -> Outcome:
    event = context.request.event
    try:
        return task(context)
    except StoppedError:
        return interrupted()
    except BmcError as exc:
        return failed(context, exc)
    except SupersededError as exc:
        return Drop(Reason.STALE_REQUEST, str(exc))
    except ClaimLostError:
        raise
    except StoreUnavailableError as exc:
        return without_store(context, exc)
    except Exception as exc:  # noqa: BLE001  # the boundary: a bug in a task must not end the worker's thread
        _log.exception("task failed", request=event, node=context.node.uuid)
        return retry_later(context, Reason.INTERNAL, f"{type(exc).__name__} in {event}")


def clean_up(context: TaskContext, outcome: Outcome, action: Callable[[TaskContext], None]) -> Outcome:
    """Run ``action``, which talks to the BMC after the task; return ``outcome``, or what interrupted the action.

    It runs outside of a task, so what ends a task early must be caught here, too.
    """
    try:
        action(context)
    except StoppedError:
        return interrupted()
    except BmcError as exc:  # only one that waits: others are noted
        return failed(context, exc)
    except SupersededError as exc:  # the request that ends the inspection cleans up, too
        return Drop(Reason.STALE_REQUEST, str(exc))
    except StoreUnavailableError as exc:  # else the claim would be kept although nobody carries it out
        return without_store(context, exc)
    return outcome


def retry_later(context: TaskContext, reason: Reason, message: str) -> Retry:
    """Try the request again after the usual delay."""
    return Retry(context.settings.worker.retry_delay, reason, message)


def failed(context: TaskContext, error: BmcError) -> Outcome:
    """Return what follows from a failed call: a failure, another attempt, or waiting for an attached Ironic."""
    if not error.transient:
        return Fail(error.reason, str(error))
    try:
        return wait_for_registry(context, error) if error.waits else retry_bmc(context, error)
    except StoreUnavailableError as exc:
        return without_store(context, exc)


def wait_for_registry(context: TaskContext, error: BmcError) -> Retry:
    """Try again, however long an attached Ironic is away; but not forever if it keeps the node locked."""
    ironic = context.settings.ironic
    if error.reason is not Reason.NODE_LOCKED:
        return Retry(ironic.outage_interval, error.reason, str(error), counted=False)
    waited = context.services.store.read(lambda tx: tx.now) - context.request.created_at
    return Retry(ironic.retry_interval, error.reason, str(error), counted=waited > ironic.lock_timeout)


def retry_bmc(context: TaskContext, error: BmcError) -> Retry:
    """Call the BMC again, with a delay that doubles with each attempt and respects the circuit breaker."""
    delay = context.settings.worker.retry_delay * 2.0 ** (counted(context.request) - 1)
    return Retry(max(delay, context.bmc_observer.retry_after()), error.reason, str(error))


def interrupted() -> Retry:
    """The process is stopping: another one takes over at once, and no attempt is counted."""
    return Retry(0.0, Reason.INTERRUPTED, "the worker was stopped", counted=False)


def without_store(context: TaskContext, error: StoreUnavailableError) -> Retry:
    """Continue when the database is back: not an error of the inspection, which ends by its time-out at the latest."""
    _log.warning("a task cannot reach the database", request=context.request.event, error=str(error))
    delay = context.settings.worker.retry_delay
    return Retry(delay, Reason.STORE_UNAVAILABLE, str(error), counted=False)
