"""The protocol core under faults: no seed breaks an invariant, and each planted bug is found by one."""

from __future__ import annotations

from typing import Final

import pytest

from tests.simulation.bugs import BUGS
from tests.simulation.run import run
from tests.simulation.scenario import from_seed

SEEDS: Final = range(1, 41)
BATCH: Final = 10
# These need more seeds than a test run has time for: python -m tests.simulation --bug NAME --seeds 1000
RARE: Final = frozenset({"claims-doubted-not", "intent-ignored", "throttle-unfenced", "throttle-outlived"})


@pytest.mark.parametrize("first", SEEDS[::BATCH])
def test_no_seed_breaks_an_invariant(first: int) -> None:
    for seed in range(first, first + BATCH):
        result = run(from_seed(seed))
        again = f"python -m tests.simulation --seed {seed} --transcript"
        assert result.rule is None, f"seed {seed} breaks {result.rule}: {result.what}; see: {again}"
        assert result.counted["inspections"] > 0 or result.counted["starts accepted"] == 0


def test_a_seed_is_the_same_run_every_time() -> None:
    one, two = (run(from_seed(7), transcript=True) for _ in range(2))
    assert one.lines == two.lines
    assert one.lines


@pytest.mark.parametrize("name", sorted(set(BUGS) - RARE))
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    for seed in range(1, bug.seeds + 1):
        if run(from_seed(seed, **dict(bug.focus)), bug=bug.patch).rule:
            return
    pytest.fail(f"{name} ({bug.what}) was not found within {bug.seeds} seeds")
