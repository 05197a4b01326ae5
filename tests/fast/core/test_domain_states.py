"""The table and the machine on it: every pair of state and event, as the design has them."""

from __future__ import annotations

import itertools

import pytest

from ferroscope.core.delivery import (
    IllegalEventError,
    NotInspectableError,
    advance,
    allowed_events,
    check_inspectable,
    is_inspectable,
)
from ferroscope.core.model import Node
from ferroscope.core.states import TRANSITIONS, Event
from ferroscope_client.core.states import ACTIVE, INITIAL, RESTING, TERMINAL, Provision, State
from tests.support import misses
from tests.support.rows import each

# Written down a second time on purpose, and the other way round: event -> source -> target.
TARGETS: dict[str, dict[str, str]] = {
    "inspect": {
        "none": "starting",
        "starting": "starting",
        "waiting": "starting",
        "finished": "starting",
        "error": "starting",
    },
    "wait": {"starting": "waiting", "waiting": "waiting"},
    "continue": {
        "starting": "processing",
        "waiting": "processing",
        "enrolling": "processing",
        "processing": "error",
    },
    "finish": {"processing": "finished", "reapplying": "finished"},
    "timeout": {"starting": "error", "waiting": "error", "processing": "error"},
    "abort": {
        "starting": "error",
        "waiting": "error",
        "processing": "error",
        "reapplying": "error",
        "enrolling": "error",
        "finished": "error",
    },
    "fail": {
        "starting": "error",
        "waiting": "error",
        "processing": "error",
        "reapplying": "error",
        "enrolling": "error",
    },
    "reapply": {"finished": "reapplying", "error": "reapplying", "reapplying": "reapplying"},
    "enroll": {"none": "enrolling", "finished": "enrolling", "error": "enrolling"},
    "delete": dict.fromkeys(State, "none"),
    **{
        command: {"none": "none", "finished": "finished", "error": "error"}
        for command in ("verify", "set-power", "set-boot-device", "attach-vmedia", "detach-vmedia", "set-password")
    },
    # An operator may power on the machine that is awaited.
    "set-power": {"none": "none", "waiting": "waiting", "finished": "finished", "error": "error"},
}
PAIRS = list(itertools.product(State, sorted(Event)))


def test_every_pair_leads_where_the_design_says_or_nowhere() -> None:
    designed = {(state, event): TARGETS[event].get(state) for state, event in PAIRS}
    misses.none(
        f"{event} while {state}: leads to {led}, not to {target}"
        for (state, event), target in designed.items()
        if (led := _target(state, event)) != target
    )


def _target(state: State, event: Event) -> State | None:
    try:
        return advance(state, event).target
    except IllegalEventError:
        return None


def test_strict_and_automatic_belong_to_the_event() -> None:
    rows = [(state, event, advance(state, event)) for state, event in PAIRS if state in TARGETS[event]]
    misses.none(
        f"{event} while {state}: {row}"
        for state, event, row in rows
        if (row.source, row.event) != (state, event)
        or row.strict != (event in (Event.CONTINUE, Event.REAPPLY))
        or row.automatic != (event in (Event.WAIT, Event.FINISH))
    )


@each("state", State)
def test_nothing_begins_an_inspection_of_a_node_that_is_being_verified(state: State) -> None:
    for event in allowed_events(state):
        if state in RESTING and advance(state, event).target in ACTIVE:
            with pytest.raises(IllegalEventError):
                advance(state, event, verifying=True)
            assert event not in allowed_events(state, verifying=True)
        else:
            assert advance(state, event, verifying=True) == advance(state, event)
            assert event in allowed_events(state, verifying=True)


def test_no_pair_stands_in_the_table_twice() -> None:
    assert len({(row.source, row.event) for row in TRANSITIONS}) == len(TRANSITIONS)


def test_states_rest_or_are_active_and_never_both() -> None:
    assert {State.STARTING} == INITIAL
    assert {State.FINISHED, State.ERROR} == TERMINAL
    assert {State.NONE, State.FINISHED, State.ERROR} == RESTING
    assert set(State) == RESTING | ACTIVE
    assert not RESTING & ACTIVE


@each("state", State)
def test_the_states_that_end_an_inspection_can_be_reached_from_everywhere(state: State) -> None:
    reached, border = {state}, {state}
    while border:
        border = {row.target for row in TRANSITIONS if row.source in border} - reached
        reached |= border
    assert reached >= TERMINAL


@each("state", State)
def test_allowed_lists_what_somebody_outside_may_send(state: State) -> None:
    expected = {event for event, targets in TARGETS.items() if state in targets} - {"wait", "finish"}
    assert set(allowed_events(state)) == expected
    assert len(allowed_events(state)) == len(expected)


def test_an_illegal_event_says_what_is_possible_instead() -> None:
    with pytest.raises(IllegalEventError) as info:
        advance(State.PROCESSING, Event.INSPECT)
    error = info.value
    assert (error.state, error.event, error.allowed) == (
        State.PROCESSING,
        Event.INSPECT,
        allowed_events(State.PROCESSING),
    )


def test_whether_a_node_may_be_inspected_has_one_answer() -> None:
    wrong = []
    for state, provision_state, inbox in itertools.product(State, Provision, (False, True)):
        node = Node(uuid="u", driver="sim", state=state, provision_state=provision_state, inbox=inbox)
        rests = state in RESTING and provision_state in ("enroll", "manageable", "inspect failed") and not inbox
        may = rests or state in (State.STARTING, State.WAITING)
        if (is_inspectable(node), _begins_in(node)) != (may, State.STARTING if may else None):
            wrong.append(f"{state}, {provision_state}, {inbox=}: it {'may' if may else 'may not'} be inspected")
    misses.none(wrong)


def _begins_in(node: Node) -> State | None:
    try:
        return check_inspectable(node).target
    except (IllegalEventError, NotInspectableError):
        return None
