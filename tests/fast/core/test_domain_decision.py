"""What a delivered request means for its node, however late, often or half done it comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.delivery import DeliveryPolicy, Drop, Fail, IllegalEventError, Run, advance, decide
from ferroscope.core.model import Node, Request
from ferroscope.core.states import COMMANDS, Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import RESTING, Provision, State
from tests.support.rows import each

RERUN = DeliveryPolicy(max_attempts=3, interrupted="rerun")
STRICT = DeliveryPolicy(max_attempts=3, interrupted="error")


def node(state: State, inspection: str | None = "now") -> Node:
    return Node(uuid="node", driver="fake", state=state, inspection=inspection)


def request(event: Event, **fields: Any) -> Request:
    return Request(node="node", event=event, **{"inspection": "now", "attempt": 1, **fields})


def test_a_first_delivery_runs_the_transition_of_the_table() -> None:
    decision = decide(node(State.WAITING), request(Event.CONTINUE), RERUN)
    assert decision == Run(advance(State.WAITING, Event.CONTINUE), rerun=False)


def test_a_second_delivery_knows_that_it_may_not_be_the_first() -> None:
    decision = decide(node(State.STARTING), request(Event.INSPECT, attempt=2), RERUN)
    assert decision == Run(advance(State.STARTING, Event.INSPECT), rerun=True)


@each("event", sorted(set(Event) - COMMANDS - {Event.DELETE}))
@each("old", ["then", None])
def test_a_request_of_another_inspection_is_dropped(event: Event, old: str | None) -> None:
    for state in State:
        decision = decide(node(state), request(event, inspection=old), RERUN)
        assert isinstance(decision, Drop)
        assert decision.reason is Reason.STALE_REQUEST


@each("state", sorted(State))
def test_a_deletion_concerns_the_node_whichever_inspection_is_its_newest(state: State) -> None:
    decision = decide(node(state), request(Event.DELETE, inspection="then"), RERUN)
    assert decision == Run(advance(state, Event.DELETE))


@each("command", sorted(COMMANDS))
def test_a_command_does_not_belong_to_an_inspection(command: Event) -> None:
    for state in RESTING:
        verifying = msgspec.structs.replace(node(state), provision_state=Provision.VERIFYING)
        decision = decide(verifying, request(command, inspection=None), RERUN)
        assert decision == Run(advance(state, command))


def test_a_verification_that_nobody_waits_for_is_dropped() -> None:
    decision = decide(node(State.FINISHED), request(Event.VERIFY, inspection=None), RERUN)
    assert isinstance(decision, Drop)
    assert decision.reason is Reason.STALE_REQUEST


@each("state", sorted(set(State) - {State.REAPPLYING}))
def test_a_reapply_is_dropped_where_the_node_is_no_longer_reapplying(state: State) -> None:
    decision = decide(node(state), request(Event.REAPPLY), RERUN)
    assert isinstance(decision, Drop)
    assert decision.reason is Reason.STALE_REQUEST


@each("state", sorted(set(State) - {State.STARTING}))
def test_a_start_is_dropped_where_the_node_is_no_longer_starting(state: State) -> None:
    decision = decide(node(state), request(Event.INSPECT), RERUN)
    assert isinstance(decision, Drop)
    assert decision.reason is Reason.STALE_REQUEST
    assert state in decision.message


def test_an_illegal_event_is_dropped_with_what_is_allowed() -> None:
    decision = decide(node(State.FINISHED), request(Event.CONTINUE), RERUN)
    assert isinstance(decision, Drop)
    assert decision.reason is Reason.ILLEGAL_EVENT
    assert "allowed: inspect" in decision.message


def test_attempts_are_bounded() -> None:
    assert isinstance(decide(node(State.WAITING), request(Event.CONTINUE, attempt=3), RERUN), Run)
    decision = decide(node(State.WAITING), request(Event.CONTINUE, attempt=4), RERUN)
    assert isinstance(decision, Fail)
    assert decision.reason is Reason.ATTEMPTS_EXHAUSTED


def test_a_task_that_was_interrupted_is_run_again_in_the_state_that_is_saved_already() -> None:
    decision = decide(node(State.PROCESSING), request(Event.CONTINUE, attempt=2, begun=True), RERUN)
    assert isinstance(decision, Run)
    assert decision.rerun
    assert (decision.transition.source, decision.transition.target) == (State.PROCESSING, State.PROCESSING)
    assert decision.transition.strict


@each("policy", [RERUN, STRICT])
@each("attempt", [2, 4])
def test_a_task_that_was_interrupted_is_not_run_again_once_its_inspection_has_ended(
    policy: DeliveryPolicy, attempt: int
) -> None:
    decision = decide(node(State.ERROR), request(Event.CONTINUE, attempt=attempt, begun=True), policy)
    assert isinstance(decision, Drop)
    assert decision.reason is Reason.STALE_REQUEST


def test_a_task_that_was_interrupted_ends_in_error_in_the_strict_reading() -> None:
    decision = decide(node(State.PROCESSING), request(Event.CONTINUE, attempt=2, begun=True), STRICT)
    assert isinstance(decision, Fail)
    assert decision.reason is Reason.INTERRUPTED


def test_a_second_and_different_callback_while_processing_ends_in_error() -> None:
    decision = decide(node(State.PROCESSING), request(Event.CONTINUE), RERUN)
    assert isinstance(decision, Fail)
    assert decision.reason is Reason.CONFLICTING_CALLBACK


@given(
    st.sampled_from(State),
    st.sampled_from(Event),
    st.sampled_from(["now", "then", None]),
    st.integers(1, 6),
    st.booleans(),
    st.sampled_from([RERUN, STRICT]),
)
def test_no_delivery_runs_what_the_table_does_not_know(
    state: State, event: Event, inspection: str | None, attempt: int, begun: bool, policy: DeliveryPolicy
) -> None:
    decision = decide(node(state), request(event, inspection=inspection, attempt=attempt, begun=begun), policy)
    if not isinstance(decision, Run):
        assert decision.reason in Reason
        assert decision.message
        return
    assert attempt <= policy.max_attempts or decision.undone
    assert decision.transition.event is event
    assert decision.transition.source is state
    assert event in COMMANDS | {Event.DELETE} or inspection == "now"
    if begun:
        assert decision.rerun
        assert policy.interrupted == "rerun"
        return
    try:
        assert decision.transition == advance(state, event)
    except IllegalEventError:
        pytest.fail(f"{event} ran in {state}")
