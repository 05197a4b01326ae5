"""Thousands of malformed callbacks: none gives a 5xx, blocks a node, kills a process or grows its memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.test_odd_inventories import KINDS, inspect
from tests.support.fuzz import flatness, odd
from tests.support.fuzz.drill import Plan, drill


def test_no_callback_damages_the_service_or_makes_its_memory_grow(tmp_path: Path) -> None:
    callbacks = 5_000
    outcome = drill(Plan(callbacks=callbacks, seed=1), tmp_path, f"sqlite:///{tmp_path / 'ferroscope.db'}")
    print(outcome.told())
    assert outcome.faults == []
    assert sum(outcome.statuses.values()) >= callbacks
    # It proves little unless a good part of them gets as far as the hooks.
    assert outcome.statuses[202] > callbacks / 40
    assert outcome.statuses[404] > callbacks / 10
    assert outcome.statuses[400] > callbacks / 5
    assert flatness.faults(flatness.trends(outcome.memory, allowed=1.0)) == []


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


def test_every_odd_request_is_answered_and_damages_nothing(tmp_path: Path, url: str) -> None:
    seen = odd.run(tmp_path, url, every=7, number=4000)
    assert seen.faults == []
    assert seen.asked == 4000


@pytest.mark.timeout(1500)
def test_every_machine_with_an_odd_inventory_is_inspected_or_its_node_says_why_not(url: str) -> None:
    inspect(url, 7 * KINDS, seed=3)
