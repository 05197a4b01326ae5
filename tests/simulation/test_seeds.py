"""The service keeps its promises under the faults of a number of seeds; ``python -m tests.simulation`` runs more.

A test that fails prints the end of the run's transcript and the command that repeats it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.simulation import report
from tests.simulation.bugs import BUGS
from tests.simulation.run import run
from tests.simulation.scenario import Scenario, elections, from_seed, pxe_filters, takeovers

_LAST_LINES = 80
_FOCUSES = {f"{bug.kind} {bug.focus}": name for name, bug in BUGS.items() if bug.focus}


def check(scenario: Scenario, options: str = "") -> None:
    """Play the scenario; fail with its transcript where an invariant is violated."""
    result = run(scenario)
    if result.rule is not None:
        lines = run(scenario, transcript=True).lines or []
        pytest.fail(f"{report.failure(result, options)}\n{report.transcript(lines[-_LAST_LINES:])}")


def few(numbers: Iterable[int], number: int) -> list[Any]:
    """Return the numbers as parameters, all but the first ``number`` of them exhaustive."""
    return [
        pytest.param(each, marks=[pytest.mark.exhaustive] if place >= number else [])
        for place, each in enumerate(numbers)
    ]


@pytest.mark.parametrize("first", few(range(1, 21, 4), 1))
def test_every_promise_is_kept(first: int) -> None:
    for seed in range(first, first + 4):
        check(from_seed(seed))


def test_no_two_leaders_write_in_elections_without_end() -> None:
    check(elections(1, active=120.0), " --elections")


@pytest.mark.parametrize("first", few(range(1, 9, 4), 1))
def test_never_are_two_pxe_filters_of_one_network_open(first: int) -> None:
    for seed in range(first, first + 4):
        check(pxe_filters(seed), " --pxe-filters")


@pytest.mark.parametrize("seeds", [1, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_no_old_leader_writes_in_hundreds_of_takeovers(seeds: int) -> None:
    results = [run(takeovers(seed, active=120.0)) for seed in range(1, seeds + 1)]
    for result in results:
        assert result.rule is None, report.failure(result, " --takeovers 1")
    assert sum(result.counted["takeovers"] for result in results) > 200 * seeds
    assert sum(result.counted["stale writes refused"] for result in results) > 20 * seeds


@pytest.mark.exhaustive  # test_every_promise_is_kept plays seeds without bugs
@pytest.mark.parametrize("name", sorted(_FOCUSES.values()))
def test_what_is_found_with_a_planted_bug_is_not_found_without_it(name: str) -> None:
    check(BUGS[name].scenario(1))


def test_nothing_goes_wrong_where_nothing_fails() -> None:
    for seed in range(1, 4):
        result = run(from_seed(seed, faults=(), slow_bmc=0.0, dumb=0.0, http_loss=0.0, aborts=0.0))
        assert result.rule is None, report.failure(result)
        assert result.counted["inspections finished"] == result.counted["inspections"] > 0
