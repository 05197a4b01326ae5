"""What a delivered request means for its node: run, run again, drop or fail. Pure.

Delivery is at least once, so a request may come late, twice, or after a worker died half way.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ferroscope.core.model import Inspection, Node, Request
from ferroscope.core.reasons import Reason
from ferroscope.core.states import (
    ACTIVE,
    BEGINS,
    BEGUN_IN,
    COMMANDS,
    INSPECTABLE,
    RESTING,
    TRANSITIONS,
    Event,
    Provision,
    State,
    Transition,
)

# The pure state machine on the table of ``states``: a state takes an event, or refuses it.
#
# It holds no state of its own and has no side effect; who saves the result is ``transition``.

_BY_PAIR: Final = {(row.source, row.event): row for row in TRANSITIONS}


class IllegalEventError(Exception):
    """The state has no transition for the event.

    ``state``, ``event`` and ``allowed`` (the events that the state does take) are attributes.
    """

    def __init__(self, state: State, event: Event, *, verifying: bool = False) -> None:
        self.state = state
        self.event = event
        self.verifying = verifying
        self.allowed = allowed(state, verifying=verifying)
        options = ", ".join(self.allowed) or "nothing"
        where = "the node is being verified" if verifying else f"the inspection is {state}"
        super().__init__(f"{event} is not possible while {where}; allowed: {options}")


class Refused(Exception):  # noqa: N818  # an answer, not a fault
    """The node does not permit what its inspection's state would; the message says what it needs."""


def check_inspectable(node: Node) -> Transition:
    """Return the transition by which an inspection of the machine begins: the one answer to "may it be inspected?".

    A node that is starting already may be asked again. Raises ``IllegalEventError`` or ``Refused``.
    """
    transition = take(node, Event.INSPECT)
    if node.state in ACTIVE:
        return transition
    if node.inbox:
        raise Refused(f"node {node.uuid} waits in the inbox; approve it first: ferroscope node approve {node.uuid}")
    if node.provision_state not in INSPECTABLE:
        options = ", ".join(sorted(INSPECTABLE))
        raise Refused(f"a node that is {node.provision_state} cannot be inspected; bring it to one of: {options}")
    return transition


def is_inspectable(node: Node) -> bool:
    """Whether ``check_inspectable`` would return."""
    try:
        check_inspectable(node)
    except (IllegalEventError, Refused):
        return False
    return True


def take(node: Node, event: Event) -> Transition:
    """Return the transition that ``event`` causes in the node; raise ``IllegalEventError``."""
    return advance(node.state, event, verifying=node.provision_state is Provision.VERIFYING)


def advance(state: State, event: Event, *, verifying: bool = False) -> Transition:
    """Return the transition that ``event`` causes in ``state``; raise ``IllegalEventError``.

    ``verifying``: whether a verification of the node waits for its end. Nothing may begin an
    inspection then, because the end of that would say that the node is manageable.
    """
    row = _BY_PAIR.get((state, event))
    if row is None or (verifying and _begins(row)):
        raise IllegalEventError(state, event, verifying=verifying)
    return row


def allowed(state: State, *, verifying: bool = False) -> tuple[Event, ...]:
    """Return the events that somebody outside may send in ``state``, in the table's order."""
    rows = (row for row in TRANSITIONS if row.source == state and not row.automatic)
    return tuple(row.event for row in rows if not (verifying and _begins(row)))


def _begins(row: Transition) -> bool:
    return row.source in RESTING and row.target in ACTIVE


# What a task, or the worker on its behalf, says about a request. Typed, never a boolean.
#
# ``Done`` and ``Next`` complete the request, ``Fail`` ends the inspection in error, ``Retry``
# leaves the request for later, ``Drop`` consumes it without any effect.


class Done(msgspec.Struct, frozen=True):
    """The task took effect; nothing follows."""


class Next(msgspec.Struct, frozen=True):
    """The task took effect and ``event`` follows from it."""

    event: Event


class Retry(msgspec.Struct, frozen=True):
    """Leave the request on the queue for ``after`` seconds.

    ``counted``: it was an attempt; otherwise only its time had not come.
    """

    after: float
    reason: Reason
    message: str
    counted: bool = True


class Fail(msgspec.Struct, frozen=True):
    """A permanent error: the inspection ends in error with this reason."""

    reason: Reason
    message: str


class Drop(msgspec.Struct, frozen=True):
    """The request has no meaning any more: consume it, record why, change nothing."""

    reason: Reason
    message: str


Outcome = Done | Next | Retry | Fail | Drop


# They concern the node itself, whichever inspection is its newest by now.
_OF_THE_NODE: Final = COMMANDS | {Event.DELETE}


class DeliveryPolicy(msgspec.Struct, frozen=True):
    """How redelivered requests are treated (``[worker] max_attempts`` and ``interrupted``)."""

    max_attempts: int = 3
    interrupted: Literal["rerun", "error"] = "rerun"


class Run(msgspec.Struct, frozen=True):
    """Carry out the task; ``rerun`` where an earlier attempt of this request began already."""

    transition: Transition
    rerun: bool = False


Decision = Run | Drop | Fail


def running_since(inspection: Inspection) -> float | None:
    """Return since when the clock of the inspection's present phase runs; None while it does not.

    A release that knew no such clock has noted since when its machine is waited for, and no more.
    """
    if inspection.clock_since is not None:
        return inspection.clock_since
    waits = inspection.state is State.WAITING and inspection.digest is None
    return inspection.waiting_since if waits else None


def is_overdue(inspection: Inspection, now: float, timeout: float) -> bool:
    """Whether the machine or its BMC has had more than ``timeout`` seconds; ``now`` by the database's clock."""
    since = running_since(inspection)
    return since is not None and now - since > timeout


def decide(node: Node, request: Request, policy: DeliveryPolicy, *, overdue: bool = True) -> Decision:
    """Return what to do with ``request``, given the stored state of its node.

    ``overdue``: whether its inspection is still so, where a time-out was asked for.
    """
    if request.event not in _OF_THE_NODE and request.inspection != node.inspection:
        return Drop(Reason.STALE_REQUEST, f"{request.event} belongs to an inspection that is over")
    if request.event is Event.TIMEOUT and not overdue:
        return Drop(Reason.STALE_REQUEST, "the inspection is no longer overdue: it has gone on meanwhile")
    # The api has saved this state together with the request.
    if node.state is not BEGINS.get(request.event, node.state):
        return Drop(Reason.STALE_REQUEST, f"{request.event} is no longer wanted: the inspection is {node.state}")
    if request.event is Event.CONTINUE and node.state is State.PROCESSING and not request.begun:
        return Fail(Reason.CONFLICTING_CALLBACK, "a second, different callback came while the first was processed")
    if request.begun and node.state is not BEGUN_IN.get(request.event):
        return Drop(
            Reason.STALE_REQUEST, f"{request.event} was interrupted, and since then the inspection is {node.state}"
        )
    if request.attempt > policy.max_attempts:
        return Fail(
            Reason.ATTEMPTS_EXHAUSTED,
            f"{request.event} was attempted {policy.max_attempts} times without an end",
        )
    if request.begun:
        if policy.interrupted == "error":
            return Fail(Reason.INTERRUPTED, f"the worker died while it carried out {request.event}")
        return Run(Transition(source=node.state, event=request.event, target=node.state, strict=True), rerun=True)
    if request.event is Event.VERIFY and node.provision_state is not Provision.VERIFYING:
        return Drop(Reason.STALE_REQUEST, f"the verification is no longer wanted: the node is {node.provision_state}")
    try:
        transition = advance(node.state, request.event)
    except IllegalEventError as exc:
        return Drop(Reason.ILLEGAL_EVENT, str(exc))
    return Run(transition, rerun=request.attempt > 1)
