"""A seed says everything: the same one gives the same run, line by line, in any process."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tests.simulation.run import run
from tests.simulation.scenario import Scenario, from_seed

_SEEDS = (5, 8)


def digest(seed: int, scenario: Callable[[int], Scenario] = from_seed) -> str:
    """Return what identifies the whole course of a run."""
    lines = run(scenario(seed), transcript=True).lines or []
    return hashlib.sha256("\n".join(map(repr, lines)).encode()).hexdigest()


def test_a_seed_gives_the_same_run_whatever_ran_before() -> None:
    first = [digest(seed) for seed in _SEEDS]
    assert [digest(seed) for seed in reversed(_SEEDS)] == first[::-1]
    assert len(set(first)) == len(_SEEDS)


def test_a_transcript_changes_nothing() -> None:
    with_one, without = (run(from_seed(5), transcript=wanted) for wanted in (True, False))
    assert with_one.counted == without.counted
    assert with_one.simulated == without.simulated
