"""What a delivered request means for its node: run, run again, drop or fail. Pure.

Delivery is at least once, so a request may come late, twice, or after a worker died half way.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from ferroscope.domain.machine import IllegalEventError, advance
from ferroscope.domain.model import Inspection, Node, Request
from ferroscope.domain.outcome import Drop, Fail
from ferroscope.domain.provision import Provision
from ferroscope.domain.reasons import Reason
from ferroscope.domain.states import BEGINS, BEGUN_IN, COMMANDS, Event, State, Transition

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
