"""What follows from an outcome, and who carries that out: the same thread, another lane, or whoever claims it.

A place in the other lane is reserved before the transaction that makes something follow: with one the claim is
kept and handed over in the process, without one the request waits unclaimed on the queue.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Protocol

import msgspec

from ferroscope import transition
from ferroscope.contracts.store import Transaction
from ferroscope.core.delivery import Fail, Next, Outcome, is_overdue
from ferroscope.core.model import Claim, Inspection, Node, Request
from ferroscope.core.states import MACHINE, WORKED_ON, Event
from ferroscope.worker.bmc_calls import Watch
from ferroscope.worker.context import TaskContext

# While one of these is carried out, the clock of the inspection's phase runs.
CLOCKED: Final = frozenset({Event.INSPECT, Event.CONTINUE})


class UnknownStateError(Exception):
    """The node is in a state that this release does not know."""


class Locked(msgspec.Struct, frozen=True):
    """A node under a claim, as it was when it was locked, and its newest inspection.

    ``confirmed_at``: when, by the monotonic clock, that was still to come. The claim was written since then.
    """

    claim: Claim
    node: Node
    inspection: Inspection | None
    confirmed_at: float


class Onward(Protocol):
    """A place for what follows."""

    def take(self, locked: Locked) -> Locked | None:
        """Carry ``locked`` out there; return it where it is the caller who has to."""

    def release(self) -> None:
        """Nothing follows after all."""


class Here:
    """What follows is carried out by whoever carried out what it follows from."""

    def take(self, locked: Locked) -> Locked | None:
        return locked

    def release(self) -> None: ...


class Started(Protocol):
    """Is told of an attempt by the thread that carries it out."""

    def carries(self, context: TaskContext) -> None:
        """The attempt has been decided and begins."""

    @property
    def watch(self) -> Watch | None: ...


def what_follows(context: TaskContext, outcome: Outcome, with_task: Container[Event]) -> Request | None:
    """Return the request that follows from an outcome, if one does.

    A failed callback leaves the machine on, also one whose workers all died before they saved the state: another
    request powers it off, in the lane that waits for BMCs.
    """
    if isinstance(outcome, Next) and outcome.event in with_task:
        return transition.request_for(context.before, outcome.event)
    computes = context.request.event is Event.CONTINUE and context.before.state in MACHINE
    if isinstance(outcome, Fail) and computes:
        said = {"reason": str(outcome.reason), "message": outcome.message}
        return transition.request_for(context.before, Event.FAIL, said)
    return None


def follow(
    tx: Transaction, context: TaskContext, request: Request, pending: Sequence[Request], *, keep: bool
) -> Claim | None:
    """Put what follows on the queue; mine at once, unless others wait for this node or I cannot ``keep`` it.

    The clock of the inspection stands still from here on: its end is decided, or it waits for us.
    """
    if request.inspection is not None:
        tx.inspections.update(request.inspection, clock_since=None)
    failed = request.event is Event.FAIL  # nothing that waits may come between
    if keep and (failed or len(pending) == 1):
        return tx.requests.put(request, instead_of=context.claim)
    if failed and (turned := tx.requests.put(request, instead_of=context.claim)) is not None:
        tx.requests.retry(turned, 0.0, counted=False)
        return None
    tx.requests.consume(context.claim)
    tx.requests.put(request)
    return None


def still_overdue(tx: Transaction, locked: Locked, timeout: float) -> bool:
    """Whether a time-out still means what it was put for; True for other requests."""
    request, inspection = locked.claim.request, locked.inspection
    if request.event is not Event.TIMEOUT or inspection is None:
        return True
    if is_overdue(inspection, tx.now, timeout):
        return True
    if locked.node.state not in WORKED_ON:
        return False
    # Whoever was at it has left it to this request: nobody else would end it.
    others = tx.requests.pending(locked.node.uuid)
    return not any(one.id != request.id and one.inspection == request.inspection for one in others)
