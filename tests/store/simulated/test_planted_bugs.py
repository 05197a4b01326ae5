"""Each planted bug is found within the number of seeds that it states: the simulation can see what it looks for.

The search begins with the seed that found it last; any other change of the code may change which seeds do.
"""

from __future__ import annotations

from typing import get_args

import pytest

from tests.simulation import report
from tests.simulation.bugs import BUGS
from tests.simulation.kernel import Rule
from tests.simulation.run import run
from tests.simulation.scenario import from_seed

_FOUND_BY = {
    "any-loss-counts": 25,
    "claim-select": 27,
    "claims-doubted-not": 2,
    "deleted-node-forgotten": 9,
    "filter-always-seconds": 13,
    "filter-not-armed": 24,
    "filter-outlives-lease": 13,
    "filter-resigns-open": 3,
    "finish-unchecked": 54,
    "frozen-leader-goes-on": 3,
    "intent-ignored": 3,
    "late-power-off-forgotten": 6,
    "leader-knows-nothing": 9,
    "lease-select": 21,
    "liar-believed": 2,
    "machine-contradicted": 3,
    "machine-fixed-early": 15,
    "no-fence": 2,
    "node-not-locked": 5,
    "node-stays-locked": 3,
    "not-durable": 3,
    "orphans-kept": 5,
    "outage-counts": 6,
    "own-claims-trusted": 7,
    "own-save-forgotten": 18,
    "renew-by-name": 4,
    "renewal-error-ignored": 2,
    "retry-unchecked": 3,
    "same-token": 39,
    "takes-on": 3,
    "throttle-outlived": 6,
    "throttle-released-early": 3,
    "throttle-unfenced": 3,
    "trust-from-answer": 2,
    "unknown-is-off": 3,
    "unknown-is-off-twice": 50,
    "youngest-first": 8,
}


@pytest.mark.parametrize("name", sorted(BUGS))
def test_a_planted_bug_is_found(name: str) -> None:
    bug, first = BUGS[name], _FOUND_BY.get(name, 1)
    for seed in (*range(first, bug.seeds + 1), *range(1, first)):
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
