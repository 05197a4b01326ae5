"""The pure state machine on the table of ``states``: a state takes an event, or refuses it.

It holds no state of its own and has no side effect; who saves the result is ``transition``.
"""

from __future__ import annotations

from typing import Final

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
