"""The example of a cloud: whichever part is killed, all inspections finish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cloud.demo import run


# tests/cluster kills each kind of part by itself: test_chaos, test_galera, test_coordination, test_floating_ip.
@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("nodes", "calm"), [(8, 0.5), pytest.param(100, 4.0, marks=pytest.mark.campaign)])
def test_all_inspections_finish_whichever_part_of_the_cloud_is_killed(tmp_path: Path, nodes: int, calm: float) -> None:
    outcome = run(tmp_path, nodes, calm=calm)
    assert (outcome.states, outcome.unfinished, outcome.wrong) == ({"finished": nodes}, 0, [])
