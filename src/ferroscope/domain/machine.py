"""The pure state machine on the table of ``states``: a state takes an event, or refuses it.

It holds no state of its own and has no side effect; who saves the result is ``transition``.
"""

from __future__ import annotations

from typing import Final

from ferroscope.domain.states import COMMANDS, RESTING, TRANSITIONS, Event, State, Transition

_BY_PAIR: Final = {(row.source, row.event): row for row in TRANSITIONS}


class IllegalEventError(Exception):
    """The state has no transition for the event.

    ``state``, ``event`` and ``allowed`` (the events that the state does take) are attributes.
    """

    def __init__(self, state: State, event: Event) -> None:
        self.state = state
        self.event = event
        self.allowed = allowed(state)
        options = ", ".join(self.allowed) or "nothing"
        super().__init__(f"{event} is not possible while the inspection is {state}; allowed: {options}")


def advance(state: State, event: Event) -> Transition:
    """Return the transition that ``event`` causes in ``state``; raise ``IllegalEventError``.

    A command (power, boot device, verification) keeps the state, and is refused while an
    inspection is under way, because that owns the machine.
    """
    if event in COMMANDS:
        if state not in RESTING:
            raise IllegalEventError(state, event)
        return Transition(source=state, event=event, target=state)
    row = _BY_PAIR.get((state, event))
    if row is None:
        raise IllegalEventError(state, event)
    return row


def allowed(state: State) -> tuple[Event, ...]:
    """Return the events that somebody outside may send in ``state``, in the table's order."""
    return tuple(row.event for row in TRANSITIONS if row.source == state and not row.automatic)
