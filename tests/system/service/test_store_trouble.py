"""The store while its database is killed, frozen, locked or read-only: an error in time, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pymysql
import pytest

from ferroscope.config.options import DatabaseSettings, Settings, WorkerSettings
from ferroscope.contracts.errors import StoreError
from ferroscope.contracts.store import Query
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.member import Membership
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.database_fault import DatabaseFault
from tests.support import databases, examples
from tests.support.processes import PATIENCE, until
from tests.support.servers import Server
from tests.support.stores import claim_from

Opened = Callable[[str], Backend]


@pytest.fixture
def opened() -> Iterator[Opened]:
    """Give a function that opens the backend of a URL, with little patience."""
    backends: list[Backend] = []

    def open_it(url: str) -> Backend:
        database = DatabaseSettings(connection=url, statement_timeout=1.0, busy_timeout=2.0, connect_timeout=2)
        settings = Settings(database=database)
        stop = threading.Event()
        backends.append(open_backend(settings, clock=SystemClock(), stop=stop, listen=False, poll_seconds=0.05))
        return backends[-1]

    yield open_it
    for backend in backends:
        backend.close()


@pytest.fixture(scope="module", params=["postgresql", "mariadb"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Give a server of each kind, which each test leaves running and writable."""
    own = Server(request.param, f"{request.param}-{os.getpid()}-trouble")
    yield own
    own.discard()


def _enrol(backend: Backend) -> str:
    node = examples.node()
    backend.store.write(lambda tx: tx.nodes.add(node))
    return node.uuid


def _works(backend: Backend) -> bool:
    with contextlib.suppress(StoreError):
        return bool(_enrol(backend))
    return False


def _refused(act: Callable[[], object]) -> DatabaseFault:
    """It ends with an error while what it waits for goes on; without the time-outs above it never would."""
    with pytest.raises(StoreError) as caught:
        act()
    return caught.value.failure.fault


def test_a_killed_server_is_an_error_and_well_again_once_it_is_back(server: Server, opened: Opened) -> None:
    with databases.fresh(server) as url:
        backend = opened(url)
        before = _enrol(backend)
        server.kill()
        _refused(lambda: _enrol(backend))
        fault = _refused(lambda: backend.store.read(lambda tx: tx.nodes.get(before)))
        assert fault is DatabaseFault.REFUSED
        _refused(lambda: claim_from(backend.queue, "worker", 0.0, threading.Event()))
        server.start()
        after = _enrol(backend)
        found = {node.uuid for node in backend.store.read(lambda tx: tx.nodes.list(Query()))}
        assert found == {before, after}


def test_a_frozen_server_is_an_error_and_well_again_once_it_goes_on(
    server: Server, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    with databases.fresh(server) as url:
        backend = opened(url)
        before = _enrol(backend)
        attempts: list[int] = []
        connect = backend.engine.connect
        monkeypatch.setattr(backend.engine, "connect", lambda: (attempts.append(1), connect())[1])
        server.freeze()
        try:
            _refused(lambda: _enrol(backend))
            assert attempts == [], "whoever has waited once waits again"
            with ThreadPoolExecutor(32) as callers:
                reads = [callers.submit(backend.store.read, lambda tx: tx.nodes.get(before)) for _ in range(32)]
            for read in reads:
                _refused(read.result)
            assert len(attempts) < len(reads) / 2, "callers wait one after the other"
        finally:
            server.thaw()
        assert until(lambda: _works(backend))
        assert before in {node.uuid for node in backend.store.read(lambda tx: tx.nodes.list(Query()))}


def test_every_write_that_returned_survives_the_death_of_the_server(server: Server, opened: Opened) -> None:
    with databases.fresh(server) as url:
        backend = opened(url)
        stored: list[str] = []

        def write() -> None:
            try:
                while True:
                    stored.append(_enrol(backend))
            except StoreError:
                return

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert until(lambda: len(stored) > 50)
        server.kill()
        for thread in threads:
            thread.join(PATIENCE)
        server.start()
        found = {node.uuid for node in backend.store.read(lambda tx: tx.nodes.list(Query()))}
        assert set(stored) <= found
        assert len(found) <= len(stored) + len(threads)


def test_a_server_that_turned_read_only_refuses_writes_and_answers_reads(server: Server, opened: Opened) -> None:
    with databases.fresh(server) as url:
        backend = opened(_of_an_operator(server, url))
        uuid = _enrol(backend)
        _set_read_only(server, value=True)
        _refused(lambda: [_enrol(backend) for _ in range(1000)])
        assert backend.store.read(lambda tx: tx.nodes.get(uuid)).uuid == uuid
        _set_read_only(server, value=False)
        assert until(lambda: _enrols(backend))


def test_a_process_knows_at_once_that_its_server_has_turned_read_only(server: Server, opened: Opened) -> None:
    with databases.fresh(server) as url:
        backend = opened(_of_an_operator(server, url))
        settings = WorkerSettings(member_ttl=2.0)
        member = Membership(backend.store, settings, role="api", stop=threading.Event(), clock=SystemClock())
        member.start()
        try:
            assert until(lambda: _fault_of(member) is None)
            _set_read_only(server, value=True)
            assert until(lambda: _fault_of(member) is DatabaseFault.READ_ONLY)
            assert backend.store.read(lambda tx: tx.members.list())
            _set_read_only(server, value=False)
            assert until(lambda: _fault_of(member) is None)
        finally:
            _set_read_only(server, value=False)
            member.leave()


def _fault_of(member: Membership) -> DatabaseFault | None:
    failure = member.read_write_failure(at_once=True)
    return None if failure is None else failure.fault


def _of_an_operator(server: Server, url: str) -> str:
    """Return the URL with our account: on MariaDB an administrator may write although the server is read-only."""
    if server.kind == "mariadb":
        _administer(server, "CREATE USER IF NOT EXISTS plain@'127.0.0.1'")
        _administer(server, "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO plain@'127.0.0.1'")
    return url.replace("root@", "plain@")


def _enrols(backend: Backend) -> bool:
    try:
        _enrol(backend)
    except StoreError:
        return False
    return True


def _set_read_only(server: Server, *, value: bool) -> None:
    if server.kind == "postgresql":
        _administer(server, f"ALTER SYSTEM SET default_transaction_read_only TO {'on' if value else 'off'}")
        _administer(server, "SELECT pg_reload_conf()")
    else:
        _administer(server, f"SET GLOBAL read_only = {int(value)}")


def _administer(server: Server, statement: str) -> None:
    if server.kind == "postgresql":
        conninfo = f"host=127.0.0.1 port={server.port} user=ferroscope dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute(statement)
    else:
        account = {"host": "127.0.0.1", "port": server.port, "user": "root", "autocommit": True}
        with pymysql.connect(**account) as connection, connection.cursor() as cursor:
            cursor.execute(statement)


def test_a_locked_sqlite_file_is_an_error(sqlite_url: str, opened: Opened) -> None:
    backend = opened(sqlite_url)
    uuid = _enrol(backend)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    assert _refused(lambda: _enrol(backend)) is DatabaseFault.LOCKED
    assert backend.store.read(lambda tx: tx.nodes.get(uuid)).uuid == uuid
    other.execute("ROLLBACK")
    other.close()
    _enrol(backend)


def test_a_sqlite_file_that_is_locked_for_a_moment_is_waited_for(sqlite_url: str, opened: Opened) -> None:
    backend = opened(sqlite_url)
    other = sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(0.3, lambda: other.execute("COMMIT"))
    timer.start()
    _enrol(backend)
    timer.join()
    other.close()
