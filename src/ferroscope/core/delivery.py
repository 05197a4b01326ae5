"""What to do with a delivered request: run it, rerun it, drop it or fail. Pure.

Requests are delivered at least once, so one may arrive late, twice, or after its worker died during the task.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ferroscope.core import ironic_nodes
from ferroscope.core.losses import count_attempts, losses_of
from ferroscope.core.model import Document, Inspection, Node, Request
from ferroscope.core.states import BEGINS, BEGUN_IN, COMMANDS, TRANSITIONS, Event, Transition
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import ACTIVE, INSPECTABLE, RESTING, Provision, State
from ferroscope_client.core.values import many

# The state machine on the table in ``states``: a state accepts an event, or rejects it.
#
# It has no state of its own and no side effects; ``transition`` saves the result.

_BY_PAIR: Final = {(row.source, row.event): row for row in TRANSITIONS}


class IllegalEventError(Exception):
    """The state has no transition for the event.

    ``state``, ``event``, ``allowed`` (the events that the state accepts) and ``where`` (in words, when the event is
    forbidden) are attributes.
    """

    def __init__(self, state: State, event: Event, *, verifying: bool = False) -> None:
        self.state = state
        self.event = event
        self.allowed = allowed_events(state, verifying=verifying)
        options = ", ".join(self.allowed) or "nothing"
        self.where = "while the node is being verified" if verifying else _when(state)
        super().__init__(f"cannot {event} {self.where}; allowed: {options}")


def _when(state: State) -> str:
    if state is State.NONE:
        return "before the node was inspected"
    if state is State.ERROR:
        return "after the inspection has failed"
    return "after the inspection has finished" if state is State.FINISHED else f"while the inspection is {state}"


class NotInspectableError(Exception):
    """The node forbids what its inspection's state would allow; the message says what to change."""


class TooManyCommandsError(Exception):
    """Too many commands wait for the node, so another one is refused."""


def check_inspectable(node: Node) -> Transition:
    """Return the transition that begins an inspection of the machine; the only check of whether it may be inspected.

    A node in ``starting`` may be requested again, and one in ``waiting`` restarted. Raises ``IllegalEventError`` or
    ``NotInspectableError``.
    """
    transition = take(node, Event.INSPECT)
    if node.state in ACTIVE:
        return transition
    if node.inbox:
        raise NotInspectableError(
            f"node {node.uuid} is in the inbox; approve it first: ferroscope node approve {node.uuid}"
        )
    if ironic_nodes.ATTACHED in node.internal:
        if refusal := ironic_nodes.refusal(node):
            raise NotInspectableError(refusal)
    elif node.provision_state not in INSPECTABLE:
        options = ", ".join(sorted(INSPECTABLE))
        raise NotInspectableError(
            f"cannot inspect a node in state {node.provision_state}; it must be in one of: {options}"
        )
    return transition


TRIAL: Final = "trial"
"""In the payload of a request to verify: only ask whether the BMC answers, and leave the node's state unchanged."""


def is_inspectable(node: Node) -> bool:
    """Whether ``check_inspectable`` succeeds."""
    try:
        check_inspectable(node)
    except (IllegalEventError, NotInspectableError):
        return False
    return True


def take(node: Node, event: Event) -> Transition:
    """Return the transition that ``event`` causes in the node; ``IllegalEventError``."""
    return advance(node.state, event, verifying=node.provision_state is Provision.VERIFYING)


def advance(state: State, event: Event, *, verifying: bool = False) -> Transition:
    """Return the transition that ``event`` causes in ``state``; ``IllegalEventError``.

    ``verifying``: the node's verification has not ended. No inspection may begin then, because the end of the
    verification would set the node to manageable.
    """
    row = _BY_PAIR.get((state, event))
    if row is None or (verifying and _begins(row)):
        raise IllegalEventError(state, event, verifying=verifying)
    return row


def allowed_events(state: State, *, verifying: bool = False) -> tuple[Event, ...]:
    """Return the events that a caller may send in ``state``, in the table's order."""
    rows = (row for row in TRANSITIONS if row.source == state and not row.automatic)
    return tuple(row.event for row in rows if not (verifying and _begins(row)))


def _begins(row: Transition) -> bool:
    return row.source in RESTING and row.target in ACTIVE


# The outcome of a task. Typed, never a boolean.
#
# ``Done`` and ``Next`` complete the request, ``Fail`` ends the inspection in error, ``Retry`` leaves the request for
# later, ``Drop`` consumes it without any effect.


class Done(msgspec.Struct, frozen=True):
    """The task took effect; nothing follows."""


class Next(msgspec.Struct, frozen=True):
    """The task took effect; ``event`` follows, with this payload."""

    event: Event
    payload: Document = {}


class Retry(msgspec.Struct, frozen=True):
    """Leave the request on the queue for ``after`` seconds.

    ``counted``: this counts as an attempt; false if the request was only too early.
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
    """The request is obsolete: consume it, record why, change nothing."""

    reason: Reason
    message: str


Outcome = Done | Next | Retry | Fail | Drop


_REASONS: Final = frozenset(Reason)
# Events that concern the node itself, not a particular inspection.
_OF_THE_NODE: Final = COMMANDS | {Event.DELETE}


class DeliveryPolicy(msgspec.Struct, frozen=True):
    """How redelivered requests are handled (``[worker] max_attempts`` and ``interrupted``)."""

    max_attempts: int = 3
    interrupted: Literal["rerun", "error"] = "rerun"


class Run(msgspec.Struct, frozen=True):
    """Carry out the task; ``rerun`` if an earlier attempt of this request has already begun.

    ``undone``: take the transition without the task, and record this.
    """

    transition: Transition
    rerun: bool = False
    undone: str = ""


Decision = Run | Drop | Fail


def running_since(inspection: Inspection) -> float | None:
    """Return when the timeout of the current phase began; None if it is not running.

    A release without ``clock_since`` recorded only since when the machine has been awaited.
    """
    if inspection.clock_since is not None:
        return inspection.clock_since
    waits = inspection.state is State.WAITING and inspection.digest is None
    return inspection.waiting_since if waits else None


def is_overdue(inspection: Inspection, now: float, timeout: float) -> bool:
    """Whether the machine or its BMC has taken more than ``timeout`` seconds; ``now`` by the database's clock."""
    since = running_since(inspection)
    return since is not None and now - since > timeout


def is_stale(node: Node, request: Request) -> bool:
    """Whether the request concerns an inspection that is not the node's current one any more."""
    return request.event not in _OF_THE_NODE and request.inspection != node.inspection


# Lost deliveries of any cause: a request that takes everything down each time must end, too.
_MOST_LOST: Final = 10
_LEFT_ON: Final = "the machine may still be on; power it off: ferroscope node power NODE off"


def decide_exhausted(node: Node, request: Request, policy: DeliveryPolicy) -> Run | Fail | None:
    """Return how a request ends that has no attempts left for this delivery; None if it has.

    Processed data is kept: if only the machine could not be powered off, the inspection finishes, and the failure is
    recorded. Results that an attached Ironic did not accept are not kept.
    """
    lost, tried = losses_of(request), count_attempts(request) - 1
    if tried < policy.max_attempts and len(lost) < _MOST_LOST:
        return None
    why = f"{request.event} did not succeed in {many(tried, 'attempt')}"
    if len(lost) >= _MOST_LOST:
        why = f"{request.event} was delivered {many(request.attempt - 1, 'time')}, and its worker was lost each time"
    elif outages := request.attempt - 1 - tried:
        why += f"; {many(outages, 'more delivery', 'more deliveries')} ended in outages or stops"
    row = _BY_PAIR.get((node.state, request.event))
    if request.event is Event.FINISH and row is not None and ironic_nodes.ATTACHED not in node.internal:
        left = _LEFT_ON if node.state is State.PROCESSING else "the results are kept"
        return Run(row, rerun=True, undone=f"{why}: {left}")
    return failure_of(request) if request.event is Event.FAIL else Fail(Reason.ATTEMPTS_EXHAUSTED, why)


def failure_of(request: Request) -> Fail:
    """Return the failure that a request to ``fail`` carries."""
    name = str(request.payload.get("reason"))
    reason = Reason(name) if name in _REASONS else Reason.INTERNAL
    return Fail(reason, str(request.payload.get("message", "the inspection failed")))


def decide(node: Node, request: Request, policy: DeliveryPolicy, *, overdue: bool = True) -> Decision:
    """Return what to do with ``request``, given the stored state of its node.

    ``overdue``: for a timeout request, whether its inspection is still overdue.
    """
    if is_stale(node, request):
        return Drop(Reason.STALE_REQUEST, f"{request.event} belongs to an inspection that has ended")
    if request.event is Event.TIMEOUT and not overdue:
        return Drop(Reason.STALE_REQUEST, "the inspection is no longer overdue")
    # The api saved this state in the same transaction as the request.
    if node.state is not BEGINS.get(request.event, node.state):
        return Drop(Reason.STALE_REQUEST, f"{request.event} is obsolete: the inspection is {node.state}")
    if request.event is Event.CONTINUE and node.state is State.PROCESSING and not request.begun:
        return Fail(
            Reason.CONFLICTING_CALLBACK,
            "received a second, different callback while the first was being processed",
        )
    if request.begun and node.state is not BEGUN_IN.get(request.event):
        return Drop(Reason.STALE_REQUEST, f"{request.event} was interrupted; the inspection is now {node.state}")
    if (ending := decide_exhausted(node, request, policy)) is not None:
        return ending
    if request.begun:
        if policy.interrupted == "error":
            return Fail(Reason.INTERRUPTED, f"the worker died during {request.event}")
        return Run(Transition(source=node.state, event=request.event, target=node.state, strict=True), rerun=True)
    is_for_state = request.event is Event.VERIFY and not request.payload.get(TRIAL)
    if is_for_state and node.provision_state is not Provision.VERIFYING:
        return Drop(Reason.STALE_REQUEST, f"the verification is obsolete: the node is {node.provision_state}")
    try:
        transition = advance(node.state, request.event)
    except IllegalEventError as exc:
        return Drop(Reason.ILLEGAL_EVENT, str(exc))
    return Run(transition, rerun=request.attempt > 1)
