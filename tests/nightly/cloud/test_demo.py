"""The example of a cloud: whichever part is killed, all inspections finish."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nightly.cloud.demo import run


# tests/support/cluster kills each kind of part by itself: test_chaos, test_galera, test_coordination, test_floating_ip.
@pytest.mark.timeout(1800)
def test_all_inspections_finish_whichever_part_of_the_cloud_is_killed(tmp_path: Path) -> None:
    kill_every_part(tmp_path, 8, calm=0.5)


def kill_every_part(tmp_path: Path, nodes: int, *, calm: float) -> None:
    outcome = run(tmp_path, nodes, calm=calm)
    assert (outcome.states, outcome.unfinished, outcome.wrong) == ({"finished": nodes}, 0, [])
