"""Gives clusters: one API server that tests share, or one with nodes for a single test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nightly.kubernetes.fleet import Fleet
from tests.nightly.kubernetes.witness import Witness
from tests.support import databases
from tests.support.kubernetes import Cluster
from tests.support.processes import until
from tests.support.servers import Server


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Give an API server without nodes, which all tests share: do it no harm that lasts."""
    with Cluster(tmp_path_factory.mktemp("kubernetes")) as cluster:
        yield cluster


@pytest.fixture
def three_nodes(tmp_path: Path) -> Iterator[Cluster]:
    """Give a cluster with three hollow nodes of one's own."""
    directory = tmp_path / "kubernetes"
    directory.mkdir()
    with Cluster(directory, nodes=3) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def machines(shared_postgresql: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Give four nodes on machines with BMCs, and two failed-node controllers, which the tests of a module share."""
    directory = tmp_path_factory.mktemp("fleet")
    with databases.fresh(shared_postgresql) as url, Fleet(directory, nodes=4, url=url) as fleet:
        fleet.deploy("db")
        yield fleet


@pytest.fixture
def fleet(machines: Fleet) -> Iterator[Fleet]:
    """Give that fleet with all nodes ready; nothing may be forced without proof, or run twice, during the test."""
    machines.settle()
    with Witness(machines) as witness:
        assert until(lambda: bool(machines.place("db")))
        yield machines
        machines.settle()
    assert witness.looks > 0
    assert witness.twice == []
    assert witness.unproven() == []
