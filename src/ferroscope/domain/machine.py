"""The pure state machine on the table of ``states``: a state takes an event, or refuses it.

It holds no state of its own and has no side effect; who saves the result is ``transition``.
"""

from __future__ import annotations

from typing import Final

from ferroscope.domain.model import Node
from ferroscope.domain.provision import INSPECTABLE, Provision
from ferroscope.domain.states import ACTIVE, RESTING, TRANSITIONS, Event, State, Transition

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
