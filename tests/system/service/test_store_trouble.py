"""The store while its database is killed, frozen, locked or read-only: an error in time, and nothing lost."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pymysql
import pytest
from sqlalchemy import make_url

from ferroscope.config.options import DatabaseSettings, Settings, WorkerSettings
from ferroscope.contracts.errors import NotFoundError, StoreError
from ferroscope.contracts.store import Query
from ferroscope.core.database_fault import DatabaseFault
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.member import Membership
from ferroscope.runtime.system import SystemClock
from tests import ROOT
from tests.support import databases, examples
from tests.support.processes import PATIENCE, until
from tests.support.servers import Server

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
        _refused(lambda: backend.queue.get("worker", 0.0, threading.Event()))
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


def test_a_server_that_stops_in_the_middle_of_a_transaction_leaves_nothing_of_it(
    server: Server, opened: Opened
) -> None:
    with databases.fresh(server) as url:
        backend = opened(url)
        node = examples.node()

        def work(tx):  # type: ignore[no-untyped-def]
            tx.nodes.add(node)
            server.kill()

        _refused(lambda: backend.store.write(work))
        server.start()
        with pytest.raises(NotFoundError):
            backend.store.read(lambda tx: tx.nodes.get(node.uuid))


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


def test_every_write_that_returned_survives_the_death_of_its_process_on_sqlite(
    sqlite_url: str, opened: Opened, tmp_path: Path
) -> None:
    program = (
        "import sys, threading\n"
        "from ferroscope.config.options import DatabaseSettings, Settings\n"
        "from ferroscope.runtime.backend import open_backend\n"
        "from ferroscope.runtime.system import SystemClock\n"
        "from tests.support import examples\n"
        "settings = Settings(database=DatabaseSettings(connection=sys.argv[1]))\n"
        "backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)\n"
        "while True:\n"
        "    node = examples.node()\n"
        "    backend.store.write(lambda tx: tx.nodes.add(node))\n"
        "    print(node.uuid, flush=True)\n"
    )
    told = tmp_path / "told"
    with told.open("w") as output:
        writer = subprocess.Popen([sys.executable, "-c", program, sqlite_url], cwd=ROOT, stdout=output)
    try:
        assert until(lambda: told.read_text().count("\n") > 50)
    finally:
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    stored = {line for line in told.read_text().splitlines(keepends=True) if line.endswith("\n")}
    backend = opened(sqlite_url)
    found = {node.uuid for node in backend.store.read(lambda tx: tx.nodes.list(Query()))}
    assert {line.strip() for line in stored} <= found


class _EndsConnections:
    """A link to PostgreSQL; once ``armed``, the answer that ends with ``last`` is followed by FATAL, not by "ready"."""

    _READY = b"Z\0\0\0\5"
    _FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"

    def __init__(self, port: int) -> None:
        self.armed = threading.Event()
        self.last = b""
        self._upstream = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._sockets = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self._server.accept()[0]
                server = socket.create_connection(("127.0.0.1", self._upstream))
                self._sockets += [client, server]
                for source, target, change in ((client, server, bytes), (server, client, self._answer)):
                    threading.Thread(target=self._pump, args=(source, target, change), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 20):
                target.sendall(change(data))
            target.shutdown(socket.SHUT_WR)

    def _answer(self, data: bytes) -> bytes:
        ready = data[-6:]
        if not self.armed.is_set() or not ready.startswith(self._READY) or not data[:-6].endswith(self.last):
            return data
        self.armed.clear()
        return data[:-6] + b"E" + (len(self._FATAL) + 4).to_bytes(4, "big") + self._FATAL

    def close(self) -> None:
        for one in self._sockets:
            one.close()


@pytest.fixture
def ending(shared_postgresql: Server, opened: Opened) -> Iterator[tuple[Backend, _EndsConnections]]:
    """Give a backend whose server ends a connection between an answer and the report that it is ready."""
    with databases.fresh(shared_postgresql) as url:
        port = make_url(url).port
        assert port is not None
        link = _EndsConnections(port)
        yield opened(make_url(url).set(port=link.port).render_as_string(hide_password=False)), link
        link.close()


def test_a_commit_is_acknowledged_although_the_server_ends_the_connection_after_it(
    ending: tuple[Backend, _EndsConnections],
) -> None:
    backend, link = ending
    _enrol(backend)
    link.last = b"COMMIT\0"
    link.armed.set()
    node = _enrol(backend)
    assert not link.armed.is_set()
    assert backend.store.read(lambda tx: tx.nodes.get(node)).uuid == node


def test_a_connection_that_the_server_ends_in_a_transaction_is_an_unavailable_database(
    ending: tuple[Backend, _EndsConnections],
) -> None:
    backend, link = ending
    node = examples.node()

    def work(tx):  # type: ignore[no-untyped-def]
        link.armed.set()
        tx.nodes.list(Query())
        assert not link.armed.is_set()
        tx.nodes.add(node)

    _refused(lambda: backend.store.write(work))
    with pytest.raises(NotFoundError):
        backend.store.read(lambda tx: tx.nodes.get(node.uuid))
    _enrol(backend)
