"""More seeds than ``tests/store/simulated`` plays; the commands beside this file play hundreds."""

from __future__ import annotations

import pytest

from tests.simulation.bugs import BUGS
from tests.store.simulated.test_seeds import check, take_over

_FOCUSES = {f"{bug.kind} {bug.focus}": name for name, bug in BUGS.items() if bug.focus}


def test_no_old_leader_writes_in_a_thousand_takeovers() -> None:
    take_over(5)


@pytest.mark.parametrize("name", sorted(_FOCUSES.values()))
def test_what_is_found_with_a_planted_bug_is_not_found_without_it(name: str) -> None:
    check(BUGS[name].scenario(1))
