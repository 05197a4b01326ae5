"""Thousands of malformed callbacks: none gives a 5xx, blocks a node, kills a process or grows its memory."""

from __future__ import annotations

from pathlib import Path

from tests.support.fuzz import flatness, odd
from tests.support.fuzz.drill import Outcome, Plan, drill
from tests.support.fuzz.mutate import Mutator


def test_no_callback_damages_the_service(tmp_path: Path) -> None:
    drilled(tmp_path, 1_500)


def test_no_callback_makes_the_memory_grow(tmp_path: Path) -> None:
    outcome = drilled(tmp_path, 5_000)
    assert flatness.faults(flatness.trends(outcome.memory, allowed=1.0)) == []


def drilled(directory: Path, callbacks: int) -> Outcome:
    outcome = drill(Plan(callbacks=callbacks, seed=1), directory, f"sqlite:///{directory / 'ferroscope.db'}")
    print(outcome.told())
    assert outcome.faults == []
    assert sum(outcome.statuses.values()) >= callbacks
    # It proves little unless a good part of them gets as far as the hooks.
    assert outcome.statuses[202] > callbacks / 40
    assert outcome.statuses[404] > callbacks / 10
    assert outcome.statuses[400] > callbacks / 5
    return outcome


def test_a_callback_can_be_made_again() -> None:
    machines = [("02:fe:00:00:00:00", "11111111-1111-4111-8111-111111111111")]
    first, again = Mutator(7, machines), Mutator(7, machines)
    assert [first.make(number) for number in range(50)] == [again.make(number) for number in range(50)]
    assert first.make(1).body != Mutator(8, machines).make(1).body


def test_every_odd_request_is_answered_and_damages_nothing(tmp_path: Path) -> None:
    seen = odd.run(tmp_path, f"sqlite:///{tmp_path / 'ferroscope.db'}", every=7)
    assert seen.faults == []
    assert seen.asked > 1000
