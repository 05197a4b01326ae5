"""The service keeps its promises under the faults of a number of seeds; ``python -m tests.simulation`` runs more.

A test that fails prints the end of the run's transcript and the command that repeats it.
"""

from __future__ import annotations

import pytest

from tests.simulation import report
from tests.simulation.run import run
from tests.simulation.scenario import Scenario, elections, failover, from_seed, pxe_filters, takeovers

_LAST_LINES = 80


def check(scenario: Scenario, options: str = "") -> None:
    """Play the scenario; fail with its transcript where an invariant is violated."""
    result = run(scenario)
    if result.rule is not None:
        lines = run(scenario, transcript=True).lines or []
        pytest.fail(f"{report.failure(result, options)}\n{report.transcript(lines[-_LAST_LINES:])}")


@pytest.mark.parametrize("seed", range(1, 5))
def test_every_promise_is_kept(seed: int) -> None:
    check(from_seed(seed))


def test_no_two_leaders_write_in_elections_without_end() -> None:
    check(elections(1, active=120.0), " --elections")


@pytest.mark.parametrize("seed", range(1, 5))
def test_never_are_two_pxe_filters_of_one_network_open(seed: int) -> None:
    check(pxe_filters(seed), " --pxe-filters")


@pytest.mark.parametrize("first", [1, 9])
def test_what_is_done_about_failed_nodes_is_certain_and_has_an_end(first: int) -> None:
    for seed in range(first, first + 8):
        check(failover(seed), " --failover")


def test_a_hanging_kubelets_pods_run_elsewhere_and_its_machine_is_on_again() -> None:
    site = {"mishaps": ("kubelet hangs",), "kinds": (1.0, 0.0, 0.0, 0.0), "inspected": 1.0, "wrong": 0.0}
    results = [run(failover(seed, faults=(), site=site)) for seed in range(1, 4)]
    assert [result.rule for result in results] == [None] * 3
    for what in ("machines powered off", "forced: pods", "forced: attachments", "remediations: done"):
        assert sum(result.counted[what] for result in results) > 0


def test_no_old_leader_writes_in_hundreds_of_takeovers() -> None:
    take_over(1)


def take_over(seeds: int) -> None:
    """Play so many seeds of elections with constantly changing leaders."""
    results = [run(takeovers(seed, active=120.0)) for seed in range(1, seeds + 1)]
    for result in results:
        assert result.rule is None, report.failure(result, " --takeovers 1")
    assert sum(result.counted["takeovers"] for result in results) > 200 * seeds
    assert sum(result.counted["stale writes refused"] for result in results) > 20 * seeds


def test_nothing_goes_wrong_where_nothing_fails() -> None:
    for seed in range(1, 4):
        result = run(from_seed(seed, faults=(), slow_bmc=0.0, dumb=0.0, http_loss=0.0, aborts=0.0))
        assert result.rule is None, report.failure(result)
        assert result.counted["inspections finished"] == result.counted["inspections"] > 0
