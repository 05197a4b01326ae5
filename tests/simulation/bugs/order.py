"""State and task in the wrong order, and what is taken for what it is not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ferroscope import transition
from ferroscope.core.delivery import Fail, Retry
from ferroscope.core.states import Event
from ferroscope.worker import attempt, loop, machine, results, start
from ferroscope_client.core.reasons import Reason
from tests.simulation.bugs.registry import bug


@bug("strict-after", "the state of a strict event is saved after its task, as if it were reentrant", rule="I2", seeds=3)
def _() -> Iterator[Any]:
    def save(_self: Any, tx: Any, locked: Any, _decision: Any) -> Any:
        tx.requests.hold(locked.claim)
        return locked

    yield loop.Worker, "save", save


@bug(
    "reentrant-before",
    "the state of a reentrant event is saved before its task, as if it were strict",
    rule="state",
    seeds=20,
)
def _() -> Iterator[Any]:
    prepared = loop.Worker.lock_and_decide

    def eager(self: Any, claim: Any, handed: Any) -> Any:
        locked, decision = prepared(self, claim, handed)
        if not isinstance(decision, loop.Run) or claim.request.event in (Event.CONTINUE, Event.REAPPLY):
            return locked, decision

        def work(tx: Any) -> Any:
            tx.requests.hold(claim)
            node = tx.nodes.get(locked.node.uuid, lock=True)
            return node if node.state is decision.transition.target else transition.apply(tx, node, decision.transition)

        self.persist(work)
        return locked, decision

    yield loop.Worker, "lock_and_decide", eager


@bug(
    "event-apart",
    "the event that an inspection has finished is written after the commit, in a transaction of its own",
    rule="event",
    seeds=1,
    notifications={"target": ('{"name": "t", "url": "http://127.0.0.1:9/"}',)},
)
def _() -> Iterator[Any]:
    commit, tell = loop.Worker.commit, transition._tell
    late: list[Any] = []

    def commit_attempt(self: Any, attempt: Any, outcome: Any) -> Any:
        late.clear()
        follows = commit(self, attempt, outcome)
        for told in late:
            attempt.store.write(lambda tx, told=told: tell(tx, *told))
        return follows

    yield transition, "_tell", lambda _tx, *told: late.append(told)
    yield loop.Worker, "commit", commit_attempt


@bug("intent-after", "the intent of a power-on is recorded after the power-on", rule="intent", seeds=3)
def _() -> Iterator[Any]:
    def power_on(self: Any, attempt: Any, _way: Any) -> None:
        with self._throttle.permit(attempt) as permit:
            machine.ensure_power(attempt, machine.Power.ON)
            attempt.intend("power on", permit.fence)

    yield start.StartTask, "_power_on", power_on


@bug(
    "intent-ignored",
    "a rerun does not look whether an earlier attempt has powered the machine on",
    rule="reboot",
    seeds=40,
    faults=("crash", "pause"),
    mean_between_faults=2.0,
    supervised=1.0,
    slow_bmc=0.2,
    nodes=6,
)
def _() -> Iterator[Any]:
    yield attempt.Attempt, "has_intended", lambda _self, _effect: False


@bug(
    "command-moves",
    "a command puts the state back that it found (found by this simulation)",
    rule="I1",
    seeds=40,
    faults=(),
    commands=0.9,
    slow_bmc=0.3,
    nodes=6,
)
def _() -> Iterator[Any]:
    yield results, "COMMANDS", frozenset()


@bug(
    "replaced-ended",
    "the end of an inspection that was replaced meanwhile ends the new one",
    rule="I1",
    seeds=40,
    faults=(),
    restarts=1.0,
    slow_bmc=0.3,
    nodes=6,
)
def _() -> Iterator[Any]:
    yield results, "is_stale", lambda _node, _request: False


@bug(
    "own-save-forgotten",
    "a save whose answer was lost is taken for another callback (found by this simulation)",
    rule="I1",
    seeds=60,
    faults=("broken connections",),
    mean_between_faults=0.8,
)
def _() -> Iterator[Any]:
    yield loop.Worker, "_has_begun", lambda _self, _tx, _claim: False
    yield loop.Worker, "prepare_claimed", lambda _self, _tx, _claim: None  # then it is prepared in a later transaction


@bug(
    "outage-counts",
    "a database that is away costs an attempt (found by this simulation)",
    rule="I1",
    seeds=100,
    faults=("database restart", "broken connections"),
    mean_between_faults=0.7,
    nodes=8,
    worker={"max_attempts": 2},
)
def _() -> Iterator[Any]:
    run = loop.Worker.run

    def counting(self: Any, attempt: Any) -> Any:
        outcome = run(self, attempt)
        if isinstance(outcome, Retry) and outcome.reason is Reason.STORE_UNAVAILABLE:
            if attempt.request.attempt >= attempt.settings.worker.max_attempts:
                return Fail(outcome.reason, outcome.message)
            return msgspec.structs.replace(outcome, counted=True)
        return outcome

    yield loop.Worker, "run", counting
