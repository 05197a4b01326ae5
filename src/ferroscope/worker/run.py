"""Runs the task of an attempt: whatever it does or raises, an outcome comes of it.

Only the loss of the claim remains an error: after that nothing may be written. Nothing is committed here, but in
``conclude``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import structlog

from ferroscope.contracts.data import Later
from ferroscope.contracts.errors import BmcError, ClaimLostError, StoreError, StoreUnavailableError
from ferroscope.core.delivery import Done, Drop, Fail, Outcome, Retry, Run, decide_exhausted
from ferroscope.core.lanes import Lane, lane_of
from ferroscope.core.losses import count_attempts, deaths, describe_delivery
from ferroscope.core.model import Request, Severity
from ferroscope.core.reasons import Reason
from ferroscope.core.states import MACHINE, Event
from ferroscope.core.values import many
from ferroscope.db.transaction import Transaction
from ferroscope.worker.attempt import Attempt, Journal, StoppedError, SupersededError
from ferroscope.worker.boot import power_off_quietly, undo_start_quietly
from ferroscope.worker.services import RETRY_SECONDS, Services

Task = Callable[[Attempt, Journal, Services], Outcome]


class ReadsAhead:
    """A task that begins with a read, which is made with the claim: that saves a round trip and a transaction."""

    def ahead(self, tx: Transaction, request: Request) -> Later[Any]:
        """Ask for it, after the node of the request was asked to be locked. It must not fail, whatever is stored."""
        raise NotImplementedError


# Reasons to wait for an attached Ironic.
# Seconds until a request is tried again whose secrets need a key that this process lacks.
_KEY_DELAY: Final = 10.0
# Requests that wait for an attached Ironic are tried again this often; most calls then fail at once.
OUTAGE_RETRY_SECONDS: Final = 5.0
WAITS: Final = frozenset({Reason.REGISTRY_UNAVAILABLE, Reason.NODE_LOCKED})

_log = structlog.get_logger(__name__)


def run(attempt: Attempt, journal: Journal, services: Services, tasks: Mapping[Event, Task]) -> Outcome:
    """Run the task of the event; a request that is not carried out only cleans up after its inspection."""
    event, decision = attempt.request.event, attempt.decision
    if isinstance(decision, Run) and decision.undone:
        return leave_undone(journal, decision.undone, Reason.ATTEMPTS_EXHAUSTED)
    if isinstance(decision, Run):
        outcome = run_task(tasks.get(event, move), attempt, journal, services)
    elif deaths(attempt.request) > services.settings.worker.max_attempts:
        return decision  # cleaning up took the worker along, too
    else:
        outcome = decision
        # Refusing it may end an inspection, whose machine is then powered off; but only in the lane that waits for
        # BMCs (see ``conclude.following``), and not if stored data was processed. A start is undone below.
        ends = attempt.before.state in MACHINE and lane_of(event) is Lane.BMC and event is not Event.INSPECT
        if isinstance(decision, Fail) and ends:
            outcome = clean_up(power_off_quietly, attempt, journal, services, decision)
    if isinstance(outcome, Fail) and event is Event.INSPECT:
        outcome = clean_up(undo_start_quietly, attempt, journal, services, outcome)
    return outcome


def run_task(task: Task, attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    """Run the task; ``ClaimLostError``. A retry after the last attempt becomes a failure."""
    request = attempt.request
    again = describe_delivery(request) if attempt.rerun else ""
    if again:
        journal.note("delivered again", again)
    outcome = _run(task, attempt, journal, services)
    if isinstance(outcome, Retry) and outcome.reason in WAITS:  # which may take hours, with many deliveries
        journal.entries = [entry for entry in journal.entries if entry[1].message != again]
    if not isinstance(outcome, Retry) or not outcome.counted:
        return outcome
    following = msgspec.structs.replace(request, attempt=request.attempt + 1)
    ending = decide_exhausted(attempt.before, following, services.settings.worker.delivery())
    if isinstance(ending, Run):
        return leave_undone(journal, f"{outcome.message}; {ending.undone}", outcome.reason)
    if isinstance(ending, Fail) and ending.reason is Reason.ATTEMPTS_EXHAUSTED:
        return Fail(outcome.reason, f"{outcome.message}; gave up after {many(count_attempts(request), 'attempt')}")
    return ending or outcome


def move(_attempt: Attempt, _journal: Journal, _services: Services) -> Outcome:
    """Do nothing: an event without a task only moves the state, as a restored row or another release may request."""
    return Done()


def leave_undone(journal: Journal, message: str, reason: Reason) -> Done:
    """Take the transition although its task did not succeed: what was processed is kept, and the rest is recorded."""
    journal.note("not carried out", message, severity=Severity.WARNING, reason=reason)
    return Done()


def _run(task: Task, attempt: Attempt, journal: Journal, services: Services) -> Outcome:
    event = attempt.request.event
    try:
        return task(attempt, journal, services)
    except StoppedError:
        return retry_interrupted()
    except BmcError as exc:
        return conclude_failure(attempt, services, exc)
    except SupersededError as exc:
        return Drop(Reason.STALE_REQUEST, str(exc))
    except ClaimLostError:
        raise
    except StoreError as exc:
        return without_store(attempt, exc)
    except Exception as exc:  # noqa: BLE001  # the boundary: a bug in a task must not end the worker's thread
        _log.exception("task failed", request=event, node=attempt.node.uuid)
        return retry_later(Reason.INTERNAL, f"{type(exc).__name__} in {event}")


def clean_up(
    action: Callable[[Attempt, Journal, Services], None],
    attempt: Attempt,
    journal: Journal,
    services: Services,
    outcome: Outcome,
) -> Outcome:
    """Run ``action``, which talks to the BMC after the task; return ``outcome``, or what interrupted the action.

    It runs outside of a task, so what ends a task early must be caught here, too.
    """
    try:
        action(attempt, journal, services)
    except StoppedError:
        return retry_interrupted()
    except BmcError as exc:  # only one that waits: others are noted
        return conclude_failure(attempt, services, exc)
    except SupersededError as exc:  # the request that ends the inspection cleans up, too
        return Drop(Reason.STALE_REQUEST, str(exc))
    except StoreError as exc:  # else the claim would be kept although nobody carries it out
        return without_store(attempt, exc)
    return outcome


def retry_later(reason: Reason, message: str) -> Retry:
    """Try the request again after the usual delay."""
    return Retry(RETRY_SECONDS, reason, message)


def conclude_failure(attempt: Attempt, services: Services, error: BmcError) -> Outcome:
    """Return what follows from a failed call: a failure, another attempt, or waiting."""
    if not error.transient:
        return Fail(error.reason, str(error))
    try:
        return wait(attempt, services, error) if error.waits else retry_bmc(attempt, error)
    except StoreUnavailableError as exc:
        return without_store(attempt, exc)


def wait(attempt: Attempt, services: Services, error: BmcError) -> Retry:
    """Try again, however long an attached Ironic is away; but not forever if it keeps the node locked.

    A process that lacks a key leaves the request to the others for a while.
    """
    if error.reason is Reason.ENCRYPTION_KEY_MISSING:
        return Retry(_KEY_DELAY, error.reason, str(error), counted=False)
    ironic = services.settings.ironic
    if error.reason is not Reason.NODE_LOCKED:
        return Retry(OUTAGE_RETRY_SECONDS, error.reason, str(error), counted=False)
    waited = services.store.read(lambda tx: tx.now) - attempt.request.created_at
    return Retry(ironic.retry_interval, error.reason, str(error), counted=waited > ironic.lock_timeout)


def retry_bmc(attempt: Attempt, error: BmcError) -> Retry:
    """Call the BMC again, with a delay that doubles with each attempt and respects the circuit breaker."""
    delay = RETRY_SECONDS * 2.0 ** (count_attempts(attempt.request) - 1)
    return Retry(max(delay, attempt.bmc_observer.retry_after()), error.reason, str(error))


def retry_interrupted() -> Retry:
    """The process is stopping: another one takes over at once, and no attempt is counted."""
    return Retry(0.0, Reason.INTERRUPTED, "the worker was stopped", counted=False)


def without_store(attempt: Attempt, error: StoreError) -> Retry:
    """Continue when the database is back: not an error of the inspection, which ends by its time-out at the latest."""
    _log.warning("a task cannot reach the database", request=attempt.request.event, error=str(error))
    return Retry(RETRY_SECONDS, Reason.STORE_UNAVAILABLE, str(error), counted=False)
