"""Thousands of malformed callbacks: none gives a 5xx, blocks a node, kills a process or grows its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fuzz import flatness, machines, odd
from tests.support.fuzz.drill import Outcome, Plan, drill


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


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def test_every_odd_request_is_answered_and_damages_nothing(tmp_path: Path, url: str) -> None:
    seen = odd.run(tmp_path, url, every=7, number=4000)
    assert seen.faults == []
    assert seen.asked == 4000


@pytest.mark.timeout(1500)
def test_every_machine_with_an_odd_inventory_is_inspected_or_its_node_says_why_not(tmp_path: Path, url: str) -> None:
    fleet = machines.run(tmp_path, url, count=203)
    print(fleet.told())
    assert fleet.faults == []
    assert sum(one.inspected for one in fleet.met) > 100
