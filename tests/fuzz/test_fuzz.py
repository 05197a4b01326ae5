"""Thousands of malformed callbacks: none gives a 5xx, blocks a node, kills a process or grows its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import flatness, odd
from tests.fuzz.drill import Plan, drill
from tests.fuzz.mutate import Mutator


@pytest.mark.parametrize("callbacks", [1_500, pytest.param(5_000, marks=pytest.mark.exhaustive)])
def test_no_callback_damages_the_service(tmp_path: Path, callbacks: int) -> None:
    outcome = drill(Plan(callbacks=callbacks, seed=1), tmp_path, f"sqlite:///{tmp_path / 'ferroscope.db'}")
    print(outcome.told())
    assert outcome.faults == []
    assert flatness.faults(flatness.trends(outcome.memory, allowed=1.0)) == []
    assert sum(outcome.statuses.values()) >= callbacks
    # It proves little unless a good part of them gets as far as the hooks.
    assert outcome.statuses[202] > callbacks / 40
    assert outcome.statuses[404] > callbacks / 10
    assert outcome.statuses[400] > callbacks / 5


def test_a_callback_can_be_made_again() -> None:
    machines = [("02:fe:00:00:00:00", "11111111-1111-4111-8111-111111111111")]
    first, again = Mutator(7, machines), Mutator(7, machines)
    assert [first.make(number) for number in range(50)] == [again.make(number) for number in range(50)]
    assert first.make(1).body != Mutator(8, machines).make(1).body


def test_every_odd_request_is_answered_and_damages_nothing(tmp_path: Path) -> None:
    seen = odd.run(tmp_path, f"sqlite:///{tmp_path / 'ferroscope.db'}", every=7)
    assert seen.faults == []
    assert seen.asked > 1000
