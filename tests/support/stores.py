"""The store that is shipped, for tests that need no server: SQLite on a file in memory, on the clock of the test.

SQLite's clock is this host's. In these stores the one expression that asks for it (``dialect.NOW``) is replaced by a
function that asks the test's, so that leases, heartbeats and time-outs pass when the test says so, and in no real time.
"""

from __future__ import annotations

import math
import shutil
import sqlite3
import tempfile
import threading
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.store import EVERYTHING, Bus, Clock, StopFlag, Take
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.model import Claim
from ferroscope.core.notification import Subscription
from ferroscope.db import Queue, Store
from ferroscope.db.engine import build_engine
from ferroscope.db.executor import NOW
from ferroscope.db.session import CompiledStatements
from ferroscope.db.sqlite import SqliteConnection
from ferroscope.runtime.system import SystemClock
from tests.support import databases
from tests.support.servers import memory_directory

_ASKED: Final = NOW["sqlite"]


class CompiledOnce(CompiledStatements):
    """Statements that any store of this test process has compiled: what comes out depends on the dialect alone."""

    _shared: Final[defaultdict[tuple[str, str], dict[Any, Any]]] = defaultdict(dict)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.compiled = self._shared[self.dialect.name, self.dialect.driver]


def open_store(
    *,
    clock: Clock | None = None,
    bus: Bus | None = None,
    meter: Meter = SILENT,
    subscriptions: Sequence[Subscription] = (),
) -> Store:
    """Return an empty store; its file is gone with it."""
    clock = clock or SystemClock()
    directory = Path(tempfile.mkdtemp(dir=memory_directory()))
    settings = DatabaseSettings(connection=databases.sqlite(directory))
    engine = build_engine(settings)
    event.listen(engine, "do_connect", _on_the_tests_clock)
    event.listen(engine, "connect", lambda connection, _: connection.create_function("tests_clock", 0, clock.time))
    store = Store(
        engine,
        settings=settings,
        bus=bus or LocalBus(),
        clock=clock,
        stop=threading.Event(),
        meter=meter,
        subscriptions=subscriptions,
    )
    weakref.finalize(store, _remove, engine, directory)
    return store


def open_queue(store: Store, *, clock: Clock, bus: Bus, poll_seconds: float = 0.0) -> Queue:
    """Return the queue of this store."""
    return Queue(store, store.engine, bus=bus, clock=clock, poll_seconds=poll_seconds)


def compressions(store: Store, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets, from now on, whether each compression was made inside a write of the store."""
    thread, found = threading.local(), list[bool]()
    write, compress = store.write, zlib.compress

    def observed(work: Callable[[Any], Any], **more: Any) -> Any:
        def within(tx: Any) -> Any:
            thread.writes = True
            try:
                return work(tx)
            finally:
                thread.writes = False

        return write(within, **more)

    def compressed(*given: Any, **more: Any) -> bytes:
        found.append(getattr(thread, "writes", False))
        return compress(*given, **more)

    monkeypatch.setattr(store, "write", observed)
    monkeypatch.setattr(zlib, "compress", compressed)
    return found


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace(_ASKED, "tests_clock()"), *parameters)

    def executemany(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        return super().executemany(sql.replace(_ASKED, "tests_clock()"), *parameters)


class _Connection(SqliteConnection):
    unlimited = _Cursor

    def cursor(self, *_: Any) -> Any:
        return super().cursor(_Cursor)


def _on_the_tests_clock(_dialect: Any, _record: Any, _arguments: Any, parameters: dict[str, Any]) -> None:
    parameters["factory"] = partial(_Connection, seconds=math.inf)


def _remove(engine: Engine, directory: Path) -> None:
    engine.dispose()
    shutil.rmtree(directory, ignore_errors=True)


def claim_from(queue: Queue, holder: str, timeout: float, stop: StopFlag, take: Take = EVERYTHING) -> Claim | None:
    """Claim a request, and do nothing about it."""
    claimed = queue.get_with(holder, timeout, stop, take, None)
    return None if claimed is None else claimed[0]
