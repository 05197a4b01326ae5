"""The short version of ``python3 -m tools chaos``: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster.chaos import FAST, storm
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.faults import FaultInjector
from tests.support.cluster.operator import Operator

FEW = {"kill_worker": 2, "kill_leader": 1, "freeze_worker": 1}
FAULTS = FEW | {"kill_worker": 5, "kill_api": 1, "cut_worker": 1, "restart_worker": 1}


def _report(title: str, lines: list[str]) -> None:
    print("\n".join([title, *lines]))


@pytest.mark.parametrize(("nodes", "faults"), [(8, FEW), (16, FAULTS)])
def test_nothing_is_lost_or_done_twice_while_processes_are_killed_frozen_and_cut_off(
    server_url: str, tmp_path: Path, nodes: int, faults: dict[str, int]
) -> None:
    plan = Plan(nodes=nodes, isolated=True, options=FAST, special=("sim-ramdisk-error-1", "sim-repeat-1"))
    with Cluster(tmp_path, server_url, plan) as cluster:
        outcome = storm(cluster, seed=1, kinds=faults, calm=1.0)
    _report(server_url.partition(":")[0], outcome.lines())
    assert outcome.audit.violations == []
    assert outcome.audit.finished > nodes
    assert sum(outcome.faults.values()) >= sum(faults.values()) - faults["kill_leader"]


def test_a_worker_that_comes_back_after_its_time_changes_nothing(server_url: str, tmp_path: Path) -> None:
    plan = Plan(nodes=60, workers=2, isolated=True, options=FAST, bmc=0.05)
    with Cluster(tmp_path, server_url, plan) as cluster:
        outcome = storm(cluster, seed=2, kinds={"freeze_worker": 2, "cut_worker": 2}, calm=0.5)
    _report(server_url.partition(":")[0], outcome.lines())
    assert outcome.audit.violations == []
    assert outcome.faults == {"SIGSTOP worker": 2, "cut off worker": 2}


def test_what_a_killed_child_held_is_carried_out_again_at_once(mariadb_url: str, tmp_path: Path) -> None:
    """How it is handed over on each database is shown in ``test_shutdown``."""
    plan = Plan(nodes=60, workers=1, supervised=2, options=FAST.replace("member_ttl = 3", "member_ttl = 3600"))
    with Cluster(tmp_path, mariadb_url, plan) as cluster:
        operator = Operator(cluster, rounds=2)
        injector = FaultInjector(cluster, seed=3, silence=0)
        operator.start()
        for _ in range(5):
            injector.pause(0.5, 1.5)
            injector.kill_worker()
        operator.done()
    # Without the supervisor's word it would have been member_ttl, an hour.
    assert operator.ended == 120
