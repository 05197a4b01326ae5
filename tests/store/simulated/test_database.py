"""The simulated database passes the conformance suite of the store, as PostgreSQL and MariaDB do.

Only what one thread can do at a time is asked here; interleaving has tests of its own. What the
suite does not ask of queries in FROM is compared with the servers themselves.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.db import Queue, Store, schema
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.simulation.database import dialects, driver
from tests.simulation.database.planner import Planner
from tests.simulation.database.server import Server
from tests.simulation.database.sessions import Limits
from tests.simulation.database.statements import Family
from tests.simulation.database.storage import build
from tests.simulation.database.tokens import UnknownSqlError
from tests.store import conftest as conformance
from tests.store.sql.test_leases import *  # noqa: F403  # noqa: F403
from tests.store.sql.test_node_text import *  # noqa: F403  # noqa: F403
from tests.store.sql.test_queue import *  # noqa: F403  # noqa: F403
from tests.store.test_addresses import *  # noqa: F403  # noqa: F403
from tests.store.test_failover_nodes import *  # noqa: F403
from tests.store.test_inspections import *  # noqa: F403  # noqa: F403
from tests.store.test_journal import *  # noqa: F403  # noqa: F403
from tests.store.test_macs import *  # noqa: F403  # noqa: F403
from tests.store.test_members import *  # noqa: F403  # noqa: F403
from tests.store.test_nodes import *  # noqa: F403  # noqa: F403
from tests.store.test_ports import *  # noqa: F403  # noqa: F403
from tests.store.test_remediations import *  # noqa: F403
from tests.store.test_requests import *  # noqa: F403  # noqa: F403
from tests.support import examples


@pytest.fixture(params=["postgresql", "mariadb"])
def family(request: pytest.FixtureRequest) -> Family:
    given: Family = request.param
    return given


@pytest.fixture
def open_adapter(family: Family) -> conformance.Open:
    clock = SystemClock()
    server = Server(None, schema.metadata, family, clock=clock.time)
    numbers = itertools.count()

    def connect() -> driver.Connection:
        return driver.Connection(server, name=f"client-{next(numbers)}", limits=Limits(lock=1.0, idle=5.0))

    def open_simulated(**options: Any) -> conformance.Adapter:
        poll_seconds = options.pop("poll_seconds", 0.05)
        settings = msgspec.structs.replace(DatabaseSettings(), **options)
        engine, bus, stop = dialects.engine(family, connect), LocalBus(), threading.Event()
        store = Store(engine, settings=settings, bus=bus, clock=clock, stop=stop)
        store._shared.send = driver.send
        queue = Queue(store, engine, bus=bus, clock=clock, poll_seconds=poll_seconds)
        return conformance.Adapter(store, queue, bus, stop)

    return open_simulated


@pytest.fixture
def adapter(open_adapter: conformance.Open) -> conformance.Adapter:
    return open_adapter()


_PAGE = "(SELECT address, node FROM ports WHERE address > '52:54:00:00:00:01' ORDER BY address LIMIT 3)"
_QUERIES = (
    f"SELECT page.address, page.node FROM {_PAGE} AS page ORDER BY page.address DESC",
    f"SELECT page.address, name FROM {_PAGE} AS page JOIN nodes ON nodes.uuid = page.node ORDER BY page.address",
    f"SELECT address, name FROM nodes JOIN {_PAGE} page ON uuid = node WHERE name = 'two' ORDER BY address",
    f"SELECT * FROM {_PAGE} AS page ORDER BY page.address LIMIT 2",
    f"SELECT count(*), max(page.address) FROM {_PAGE} AS page",
    f"SELECT name FROM nodes WHERE EXISTS (SELECT 1 FROM {_PAGE} AS page WHERE node = nodes.uuid) ORDER BY name",
    f"SELECT name, (SELECT count(*) FROM {_PAGE} AS page) FROM nodes ORDER BY name",
    f"SELECT ports.address FROM (SELECT node AS owner FROM {_PAGE} AS page ORDER BY page.address LIMIT 1) AS least"
    " JOIN ports ON ports.node = least.owner ORDER BY ports.address",
    "SELECT newest.address FROM (SELECT max(address) AS address FROM ports WHERE node = '-') AS newest",
    "SELECT ports.mac FROM (SELECT node, address AS mac FROM ports) AS ports"
    " WHERE ports.mac > '52:54:00:00:00:03' ORDER BY ports.mac",
)


@pytest.mark.parametrize("family", ["postgresql"])
def test_queries_in_from_are_answered_as_on_the_server(
    adapter: conformance.Adapter, family: Family, request: pytest.FixtureRequest
) -> None:
    nodes = [examples.node(name=name) for name in ("one", "two", "three")]
    ports = [examples.port(nodes[n % 2], address=f"52:54:00:00:00:{n:02x}") for n in (4, 2, 1, 5, 3)]

    def answers(store: Store) -> dict[str, list[tuple[Any, ...]]]:
        for node in nodes:
            store.write(lambda tx, node=node: tx.nodes.add(node))
        store.write(lambda tx: tx.ports.add(ports))

        def ask(tx: Any) -> dict[str, list[tuple[Any, ...]]]:
            return {query: [tuple(row) for row in tx.connection.execute(text(query))] for query in _QUERIES}

        return store.read(ask)

    settings = Settings(database=DatabaseSettings(connection=request.getfixturevalue(f"{family}_url")))
    backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    try:
        expected = answers(backend.store)
    finally:
        backend.close()
    assert all(expected.values())
    assert answers(adapter.store) == expected


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT page.address FROM (SELECT address FROM ports) AS page FOR UPDATE", id="locked"),
        pytest.param("SELECT page.address FROM (SELECT address FROM ports FOR UPDATE) AS page", id="locked within"),
        pytest.param("SELECT page.address FROM (SELECT * FROM ports) AS page", id="all columns"),
        pytest.param("SELECT count(*) FROM (SELECT max(address) FROM ports) AS page", id="no name"),
        pytest.param("SELECT count(*) FROM (SELECT uuid, node AS uuid FROM ports) AS page", id="a name twice"),
    ],
)
def test_a_query_in_from_that_would_be_half_understood_is_refused(query: str) -> None:
    with pytest.raises(UnknownSqlError, match="in FROM"):
        Planner(build(schema.metadata)).plans(query)
