"""The kernel kills a process of a service at work because it gets no more memory: nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.support.cluster.audit import audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.operator import Operator
from tests.support.memory_limit import no_more_memory
from tests.support.processes import until

# How many processes are killed, one after the other, each in the middle of the work of the one before.
KILLS: Final = 3


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_processes_without_memory_are_killed_by_the_kernel_and_no_inspection_is_lost(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    plan = Plan(nodes=40, apis=1, workers=1, supervised=2, bmc=0.1, options=FAST)
    with Cluster(tmp_path, request.getfixturevalue(f"{kind}_url"), plan) as cluster:
        operator = Operator(cluster, rounds=3)
        operator.start()
        (worker,) = cluster.workers
        for kill in range(KILLS):
            so_far = operator.ended
            assert until(lambda so_far=so_far: operator.ended > so_far)
            victim = worker.children()[kill % 2]
            with no_more_memory(victim) as killed:
                assert until(lambda killed=killed: killed() > 0)
                assert until(lambda victim=victim: victim not in worker.children())
            assert until(lambda: len(worker.children()) == 2)
        operator.done()
        assert operator.ended == 3 * plan.nodes
        assert audit(cluster, operator).violations == []
        assert worker.alive
