"""The simulated database passes the conformance suite of the store, as PostgreSQL and MariaDB do.

Only what one thread can do at a time is asked here; interleaving has tests of its own.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings
from ferroscope.db import schema
from ferroscope.db.queue import SqlQueue
from ferroscope.db.transaction import SqlStore
from ferroscope.runtime.system import SystemClock
from tests.conformance import conftest as conformance
from tests.conformance.test_addresses import *  # noqa: F403
from tests.conformance.test_inspections import *  # noqa: F403
from tests.conformance.test_journal import *  # noqa: F403
from tests.conformance.test_leases import *  # noqa: F403
from tests.conformance.test_macs import *  # noqa: F403
from tests.conformance.test_members import *  # noqa: F403
from tests.conformance.test_nodes import *  # noqa: F403
from tests.conformance.test_ports import *  # noqa: F403
from tests.conformance.test_queue import *  # noqa: F403
from tests.conformance.test_requests import *  # noqa: F403
from tests.simulation.database import dialects, driver
from tests.simulation.database.server import Server
from tests.simulation.database.sessions import Limits

pytestmark = pytest.mark.every_database  # there is no server, and all of it takes seconds


@pytest.fixture(params=["postgresql", "mariadb"])
def open_adapter(request: pytest.FixtureRequest) -> Iterator[conformance.Open]:
    clock = SystemClock()
    server = Server(None, schema.metadata, request.param, clock=clock.time)
    numbers = itertools.count()

    def connect() -> driver.Connection:
        return driver.Connection(server, name=f"client-{next(numbers)}", limits=Limits(lock=1.0, idle=5.0))

    def open_simulated(**options: Any) -> conformance.Adapter:
        settings = msgspec.structs.replace(DatabaseSettings(poll_interval=0.05), **options)
        engine, bus, stop = dialects.engine(request.param, connect), LocalBus(), threading.Event()
        store = SqlStore(engine, settings=settings, bus=bus, clock=clock, stop=stop)
        queue = SqlQueue(store, engine, bus=bus, clock=clock, poll_interval=settings.poll_interval)
        return conformance.Adapter(store, queue, stop)

    yield open_simulated


@pytest.fixture
def adapter(open_adapter: conformance.Open) -> conformance.Adapter:
    return open_adapter()
