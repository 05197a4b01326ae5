"""The simulation (``tests/simulation``) still fits the product: one short run, so that a move that breaks it shows."""

from __future__ import annotations

from tests.simulation.run import run
from tests.simulation.scenario import elections, from_seed, pxe_filters
from tests.support.rows import each


@each("build", [from_seed, elections, pxe_filters])
def test_a_short_run_of_the_simulation_passes(build: object) -> None:
    result = run(build(1, active=10.0))  # type: ignore[operator]
    assert result.rule is None, result.what
    assert result.counted["commits"] > 10
