"""What a session of PostgreSQL is, whatever its database, its administrator or a URL say; what cannot be is refused."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from sqlalchemy import Connection, make_url
from sqlalchemy.exc import OperationalError

from ferroscope.bus.local import LocalBus
from ferroscope.bus.postgresql import start_watcher
from ferroscope.config.options import DatabaseSettings
from ferroscope.db.engine import build_engine
from ferroscope.db.executor import Command, CommandError
from ferroscope.db.postgresql import send
from tests.store.conftest import stores
from tests.support import databases
from tests.support.postgresql_places import pooler, standby
from tests.support.processes import until
from tests.support.servers import Server


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    engine = build_engine(DatabaseSettings(connection=url, statement_timeout=4.0))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _created(server: Server, name: str, how: str) -> Iterator[str]:
    with psycopg.connect(
        f"host=127.0.0.1 port={server.port} user=ferroscope dbname=postgres", autocommit=True
    ) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0 {how}".encode())
        yield server.url(name)
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_store_every_text_is_refused(shared_postgresql: Server, encoding: str) -> None:
    """A cluster that was made with LANG=C is in SQL_ASCII, one of an old site in LATIN1."""
    name = f"in_{encoding.lower()}"
    with (
        _created(shared_postgresql, name, f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'") as url,
        pytest.raises(OperationalError, match=rf"{encoding}.*ENCODING 'UTF8' TEMPLATE template0"),
        _connected(url),
    ):
        pytest.fail("it was used")


def test_text_and_times_are_stored_as_they_are_whatever_an_administrator_prefers(shared_postgresql: Server) -> None:
    preferred = ("client_encoding = 'LATIN1'", "IntervalStyle = 'sql_standard'", "TimeZone = 'Asia/Kathmandu'")
    with _created(shared_postgresql, "preferred", "ENCODING 'UTF8'") as url, ExitStack() as stack:
        with _connected(url) as connection:
            for one in preferred:
                connection.exec_driver_sql(f"ALTER DATABASE preferred SET {one}")
        databases.upgrade(url)
        adapter = stores(stack, url)()
        node = adapter.node(extra={"place": "Süd, 日本"})
        assert node.extra == {"place": "Süd, 日本"}
        assert node.created_at == pytest.approx(adapter.read(lambda tx: tx.now), abs=600)
        with psycopg.connect(url.replace("+psycopg", ""), client_encoding="utf8") as connection:
            assert connection.execute("SELECT extra FROM nodes").fetchone() == ('{"place":"Süd, 日本"}',)


def test_a_session_that_hangs_is_given_up(postgresql_url: str) -> None:
    """The server's own time limits work only while its processes run."""
    engine = build_engine(DatabaseSettings(connection=postgresql_url, statement_timeout=0.2))
    with engine.connect() as connection:
        pid = int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
        driver = connection.connection.dbapi_connection
        asked = [Command("SELECT 1", {}, answers=True), Command("SELECT 2", {}, answers=True)]
        assert [rows for rows, _ in send(connection, asked)] == [[(1,)], [(2,)]]
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(CommandError, match="has not answered for 0") as caught:
                send(connection, asked)
        finally:
            os.kill(pid, signal.SIGCONT)
        assert caught.value.sent == len(asked)  # they may have been executed
        assert driver is not None
        assert driver.closed  # a late answer must not be read as that of the next one
        connection.invalidate()
    engine.dispose()


def test_settings_in_the_url_hold_beside_those_of_the_service(postgresql_url: str) -> None:
    given = "options=-csearch_path%3Dother%20-cstatement_timeout%3D0&application_name=mine&connect_timeout=900"
    with _connected(f"{postgresql_url}?{given}") as connection:
        names = ("search_path", "application_name", "statement_timeout", "lock_timeout")
        assert [connection.exec_driver_sql(f"SHOW {name}").scalar_one() for name in names] == [
            "other", "mine", "4s", "4s",
        ]  # fmt: skip


def test_who_listens_does_so_with_settings_in_the_url(postgresql_url: str) -> None:
    bus, stop = LocalBus(), threading.Event()
    url = f"{postgresql_url}?application_name=mine&keepalives_idle=9"
    thread = start_watcher(DatabaseSettings(connection=url), bus=bus, stop=stop)
    try:
        assert until(lambda: bus.hears)
    finally:
        stop.set()
        assert thread is not None
        thread.join()


@pytest.mark.parametrize("ignores", [False, True])
def test_a_pooler_whose_sessions_keep_nothing_is_refused(postgresql_url: str, *, ignores: bool) -> None:
    url = make_url(postgresql_url)
    assert url.port is not None
    with (
        pooler(url.port, ignores=ignores) as port,
        pytest.raises(OperationalError, match=r"pooler.*PostgreSQL itself"),
        _connected(url.set(port=port).render_as_string(hide_password=False)),
    ):
        pytest.fail("it was used")


def test_a_standby_in_front_of_the_primary_is_passed_over_in_any_list(postgresql_url: str) -> None:
    """As where a name has several addresses; the list is libpq's own form."""
    url = make_url(postgresql_url)
    with standby() as port:
        given = f"host=127.0.0.1,127.0.0.1&port={port},{url.port}"
        with _connected(f"postgresql://{url.username}@/{url.database}?{given}") as connection:
            assert connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one() is False
        bus, stop = LocalBus(), threading.Event()
        settings = DatabaseSettings(connection=f"postgresql://{url.username}@/{url.database}?{given}")
        thread = start_watcher(settings, bus=bus, stop=stop)
        assert until(lambda: bus.hears)
        stop.set()
        assert thread is not None
        thread.join()
