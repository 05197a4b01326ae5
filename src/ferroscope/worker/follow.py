"""What follows from an outcome, and where it is carried out: in this thread, in the other lane, or by any worker.

A place in the other lane is reserved before the transaction that creates the following request. With a place the claim
is kept and handed over inside the process; without one the request waits, unclaimed, on the queue.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

import msgspec

from ferroscope import transition
from ferroscope.core.delivery import Decision, Fail, Next, Outcome, is_overdue
from ferroscope.core.model import Claim, Inspection, Node, Request
from ferroscope.core.states import MACHINE, WORKED_ON, Event
from ferroscope.db.transaction import Transaction
from ferroscope.worker.context import TaskContext

# While one of these is carried out, the clock of the inspection's phase is running.
CLOCKED: Final = frozenset({Event.INSPECT, Event.CONTINUE})


class Locked(msgspec.Struct, frozen=True):
    """A node under a claim, as it was when it was locked, and its newest inspection.

    ``confirmed_at`` is a time of the monotonic clock before the claim was last written or committed. ``decision`` is
    what to do, if it was decided and saved in the same transaction.
    """

    claim: Claim
    node: Node
    inspection: Inspection | None
    confirmed_at: float
    decision: Decision | None = None


class Place(Protocol):
    """A reserved place for the request that follows."""

    def take(self, locked: Locked) -> Locked | None:
        """Hand ``locked`` over; return it if the caller has to carry it out itself."""

    def release(self) -> None:
        """Give the place up: nothing follows after all."""


class SameThread:
    """The thread that carried out a request carries out the following one, too."""

    def take(self, locked: Locked) -> Locked | None:
        return locked

    def release(self) -> None: ...


def following_request(context: TaskContext, outcome: Outcome, with_task: Container[Event]) -> Request | None:
    """Return the request that follows from an outcome, if any.

    A failed callback leaves the machine powered on, even if its workers all died before they saved the state: a request
    to ``fail`` powers it off in the lane that waits for BMCs.
    """
    if isinstance(outcome, Next) and outcome.event in with_task:
        return transition.request_for(context.before, outcome.event, outcome.payload)
    is_callback = context.request.event is Event.CONTINUE and context.before.state in MACHINE
    if isinstance(outcome, Fail) and is_callback:
        payload = {"reason": str(outcome.reason), "message": outcome.message}
        return transition.request_for(context.before, Event.FAIL, payload)
    return None


def put_following(
    tx: Transaction, context: TaskContext, request: Request, pending: Sequence[Request], *, keep: bool
) -> Claim | None:
    """Put the following request on the queue instead of the present one; return its claim if this worker keeps it.

    It is kept if there is a place for it (``keep``) and no other request waits for the node. A ``fail`` always takes
    the place of the present request: nothing that waits may come in between. The inspection's clock stops here: its
    end is decided, or it waits for us.
    """
    if request.inspection is not None:
        tx.inspections.update(request.inspection, clock_since=None)
    failing = request.event is Event.FAIL
    if keep and (failing or len(pending) == 1):
        return tx.requests.put(request, instead_of=context.attempt.claim)
    if failing and (claim := tx.requests.put(request, instead_of=context.attempt.claim)) is not None:
        tx.requests.retry(claim, 0.0, counted=False)
        return None
    tx.requests.consume(context.attempt.claim)
    tx.requests.put(request)
    return None


def is_still_overdue(tx: Transaction, locked: Locked, timeout: float) -> bool:
    """Whether a request to time out still applies; True for all other requests."""
    request, inspection = locked.claim.request, locked.inspection
    if request.event is not Event.TIMEOUT or inspection is None:
        return True
    if is_overdue(inspection, tx.now, timeout):
        return True
    if locked.node.state not in WORKED_ON:
        return False
    # The attempt that worked on it may have left the end to this request. If there is no other, it must not be lost.
    others = tx.requests.pending(locked.node.uuid)
    return not any(one.id != request.id and one.inspection == request.inspection for one in others)


def is_aborted(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether an abort was requested for the inspection whose data has just been processed."""
    if context.request.event not in (Event.CONTINUE, Event.REAPPLY):
        return False
    return any(other.event is Event.ABORT and other.inspection == context.request.inspection for other in pending)


def has_conflicting_callback(context: TaskContext, pending: Sequence[Request]) -> bool:
    """Whether a different callback arrived while one was processed, or while its machine was being powered off."""
    mine = context.request
    return mine.event in (Event.CONTINUE, Event.FINISH) and any(
        other.event is Event.CONTINUE and other.inspection == mine.inspection and other.id != mine.id
        for other in pending
    )
