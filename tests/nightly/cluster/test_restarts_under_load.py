"""Whole installations whose processes, or whose database, are killed under load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cluster.audit import audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.cluster.operator import Operator
from tests.support.processes import until


def test_reads_go_on_through_the_pool_after_a_restart_of_the_database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue("postgresql_server")
    from tests.support import databases

    with (
        databases.fresh(server) as url,
        Cluster(tmp_path, url, Plan(nodes=20, apis=1, workers=2, options=FAST)) as cluster,
    ):
        operator = Operator(cluster, rounds=3)
        operator.start()
        assert until(lambda: operator.ended >= 5)
        client = pool(1)
        server.kill()
        assert until(lambda: client.request("GET", f"{cluster.url}/v1/nodes?limit=1").status == 503)
        server.start()
        assert until(lambda: client.request("GET", f"{cluster.url}/v1/nodes?limit=1").status == 200)
        operator.done()
        found = audit(cluster, operator)
    assert found.violations == []
