"""Each planted bug is found within the number of seeds that it states: the simulation can see what it looks for."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.simulation import report
from tests.simulation.bugs import BUGS
from tests.simulation.kernel import Rule
from tests.simulation.run import run
from tests.simulation.scenario import from_seed


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    bug = BUGS[name]
    for seed in range(1, bug.seeds + 1):
        result = run(bug.scenario(seed), bug=bug.patch)
        if result.rule == bug.rule:
            print(report.failure(result, f" --bug {name}"))
            return
    pytest.fail(f"{bug.seeds} seeds did not show by {bug.rule} that {bug.what}")


def test_every_rule_finds_a_planted_bug() -> None:
    """But the one that ends a run that would never end."""
    assert {bug.rule for bug in BUGS.values()} == set(get_args(Rule)) - {"spin"}


def test_a_planted_bug_is_gone_after_the_run() -> None:
    seed = 1
    before = run(from_seed(seed), transcript=True).lines
    for bug in BUGS.values():
        with bug.patch():
            pass
    run(from_seed(seed), bug=BUGS["throttle-unfenced"].patch)
    assert run(from_seed(seed), transcript=True).lines == before
