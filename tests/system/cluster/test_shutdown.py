"""Graceful ends and sudden ones, role by role: what SIGTERM promises, and what the supervisor makes of a SIGKILL."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from tests.support.cluster.audit import audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.operator import Operator
from tests.support.processes import PATIENCE, is_running, until

# Longer than any test: what is free again was handed over, it did not expire.
LONG_LIVES = FAST.replace("member_ttl = 3", "member_ttl = 3600\ngraceful_timeout = 3600").replace(
    "profile = fast", "profile = custom\nttl = 3600"
)


def rows(cluster: Cluster, statement: str) -> list[tuple[object, ...]]:
    engine = build_engine(DatabaseSettings(connection=cluster.database_url))
    try:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(text(statement))]
    finally:
        engine.dispose()


def member_pids(cluster: Cluster, role: str = "worker") -> set[int]:
    members = f"SELECT pid FROM members WHERE role = '{role}' AND left_at IS NULL"
    return {int(str(row[0])) for row in rows(cluster, members)}


def test_a_stopped_worker_hands_everything_over_at_once(server_url: str, tmp_path: Path) -> None:
    plan = Plan(nodes=60, apis=1, workers=2, bmc=0.05, options=LONG_LIVES)
    with Cluster(tmp_path, server_url, plan) as cluster:
        operator = Operator(cluster, rounds=2)
        operator.start()
        assert until(lambda: operator.ended >= 3)
        first, second = cluster.workers
        leads = {name for name, holder in rows(cluster, "SELECT name, holder FROM leases") if holder}
        for worker in (first, second):
            assert worker.stop(PATIENCE) == 0
            assert worker.pid not in member_pids(cluster)
            gone = rows(
                cluster,
                "SELECT holder FROM requests WHERE holder NOT IN (SELECT id FROM members WHERE left_at IS NULL)",
            )
            assert gone == []
            worker.start()
            worker.wait_ready()
        assert until(
            lambda: {name for name, holder in rows(cluster, "SELECT name, holder FROM leases") if holder} == leads
        )
        operator.done()
        assert operator.ended == 120
        assert audit(cluster, operator).violations == []


def test_what_a_killed_child_held_is_free_in_a_second_and_another_child_takes_its_place(
    server_url: str, tmp_path: Path
) -> None:
    plan = Plan(nodes=40, apis=1, workers=1, supervised=2, bmc=0.3, options=LONG_LIVES)
    with Cluster(tmp_path, server_url, plan) as cluster:
        operator = Operator(cluster, rounds=1)
        operator.start()
        (worker,) = cluster.workers
        assert until(lambda: operator.ended >= 1)
        victim = sorted(member_pids(cluster))[0]
        (member,) = (row[0] for row in rows(cluster, f"SELECT id FROM members WHERE pid = {victim}"))
        os.kill(victim, signal.SIGKILL)
        held = f"SELECT id FROM requests WHERE holder = '{member}'"
        leads = f"SELECT name FROM leases WHERE holder = '{member}'"
        assert until(lambda: rows(cluster, held) == [] and rows(cluster, leads) == [])
        assert until(lambda: len(member_pids(cluster)) == 2 and victim not in member_pids(cluster))
        operator.done()
        assert audit(cluster, operator).violations == []
        assert worker.alive


def test_children_stop_when_their_supervisor_is_killed(postgresql_url: str, tmp_path: Path) -> None:
    plan = Plan(nodes=5, apis=1, workers=1, supervised=2, options=LONG_LIVES)
    with Cluster(tmp_path, postgresql_url, plan) as cluster:
        (worker,) = cluster.workers
        assert until(lambda: len(member_pids(cluster)) == 2)
        children = worker.children()
        assert len(children) == 2
        worker.kill()
        assert until(lambda: not any(is_running(pid) for pid in children))
        assert member_pids(cluster) == set()  # and they said goodbye


def test_a_frozen_child_whose_parent_is_told_to_stop_does_not_keep_it(postgresql_url: str, tmp_path: Path) -> None:
    plan = Plan(nodes=5, apis=1, workers=1, supervised=2, options=LONG_LIVES + "[worker]\ngraceful_timeout = 1\n")
    with Cluster(tmp_path, postgresql_url, plan) as cluster:
        (worker,) = cluster.workers
        assert until(lambda: len(member_pids(cluster)) == 2)
        frozen = worker.children()[0]
        os.kill(frozen, signal.SIGSTOP)
        assert worker.stop(30) == 0
        assert until(lambda: not is_running(frozen))
