"""A server ends the session of a transaction, for real: what became of it is open only if COMMIT was sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Final

import pymysql
import pytest
from sqlalchemy import insert
from sqlalchemy.exc import OperationalError

from ferroscope.contracts.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.db import Transaction, connections, mariadb, schema, store
from ferroscope.db.errors import classify, leaves_open
from ferroscope.db.executor import CommandError, Result, SqlCommand
from tests.store.conftest import Adapter, stores
from tests.support import examples
from tests.support.processes import until

# Its own number, the statement that ends a session, and the query for whether that is still there.
_SESSIONS: Final = {
    "postgresql": (
        "SELECT pg_backend_pid()",
        "SELECT pg_terminate_backend({})",
        "SELECT count(*) FROM pg_stat_activity WHERE pid = {}",
    ),
    "mysql": (
        "SELECT CONNECTION_ID()",
        "KILL {}",
        "SELECT count(*) FROM information_schema.processlist WHERE id = {}",
    ),
}

_RECEIPT: Final = {"call": "", "void": False, "status": 0, "expires_at": 1e12, "reply": ""}


@pytest.fixture
def adapter(server_kind: str, request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """Give a store on a database server: SQLite has no session that could end."""
    with ExitStack() as stack:
        yield stores(stack, request.getfixturevalue(f"{server_kind}_url"))()


def end_session(adapter: Adapter, connection: Any) -> None:
    """Let an administrator end the session of this connection."""
    own, end, present = _SESSIONS[connection.dialect.name.replace("mariadb", "mysql")]
    number = connection.exec_driver_sql(own).scalar_one()
    with adapter.store.engine.connect() as other:
        other.exec_driver_sql(end.format(number))
        assert until(lambda: other.exec_driver_sql(present.format(number)).scalar_one() == 0)


def added(tx: Transaction) -> None:
    tx.nodes.add(examples.node())


def noted(tx: Transaction, ident: str) -> None:
    """Write something that takes one message, from BEGIN to COMMIT."""
    tx.ask(insert(schema.receipts), _RECEIPT | {"id": ident})


def count_nodes(adapter: Adapter) -> int:
    """Return the number of nodes, -1 while the database is taken to be silent."""
    with suppress(StoreError):
        return len(adapter.read(lambda tx: tx.nodes.list(Query())))
    return -1


def assert_nothing_changed(adapter: Adapter, rest: Callable[[Transaction], None]) -> None:
    """Let the session end in the middle of a change; see that it is an ordinary error, and that the next one works."""

    def work(tx: Transaction) -> None:
        added(tx)
        end_session(adapter, tx.connection)
        rest(tx)

    with pytest.raises(StoreUnavailableError):
        adapter.write(work)
    assert list(adapter.read(lambda tx: tx.nodes.list(Query()))) == []
    adapter.write(added)


def test_a_session_that_ended_while_the_work_took_its_time(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_IDLE_SECONDS", -1.0)
    assert_nothing_changed(adapter, lambda _: None)


def test_a_session_that_ended_before_the_last_statements(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """PostgreSQL says so at the first of them; a node of Galera gets each of them by itself."""
    monkeypatch.setattr(mariadb, "GALERA", connections._GENERATION)  # which every connection has
    assert_nothing_changed(adapter, added)


def test_a_session_that_ended_before_the_last_text(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of many megabytes takes more than one text."""
    monkeypatch.setattr(mariadb, "_MAX_PACKET_BYTES", 1)
    assert_nothing_changed(adapter, added)


def test_a_session_that_postgresql_ended_in_the_pool_is_replaced(postgresql_url: str) -> None:
    """It says so before it reads a message that contains everything, COMMIT included."""
    with ExitStack() as stack:
        adapter = stores(stack, postgresql_url)()
        adapter.write(lambda tx: noted(tx, "first"))
        pooled = adapter.store._connections._free[-1]
        end_session(adapter, pooled)
        adapter.write(lambda tx: noted(tx, "second"))
        assert adapter.read(lambda tx: tx.receipts.get("second")) is not None


def test_a_session_that_ends_at_commit_leaves_it_open(adapter: Adapter) -> None:
    send = adapter.store._shared.send

    def lost(connection: Any, commands: Sequence[SqlCommand]) -> list[Result]:
        results: list[Result] = send(connection, commands)
        if commands[-1].text != "COMMIT":
            return results
        end_session(adapter, connection)
        try:
            return send(connection, commands[-1:])
        except CommandError as exc:
            raise CommandError(len(commands) - 1, exc.cause) from exc

    adapter.store._shared.send = lost
    with pytest.raises(OutcomeUnknownError):
        adapter.write(added)
    adapter.store._shared.send = send
    assert until(lambda: count_nodes(adapter) == 1)  # a second later, if that took long: see ``connections.Breaker``


@pytest.mark.parametrize(
    ("message", "kind", "is_open"),
    [
        ('Got error 6 "No such device or address" during COMMIT', "unavailable", True),
        ('Got error 35 "Resource deadlock avoided" during COMMIT', "busy", False),
        ('Got error 149 "Lock deadlock; Retry transaction" during COMMIT', "busy", False),
    ],
)
def test_a_commit_that_lost_a_conflict_on_galera_is_tried_again(message: str, kind: str, is_open: bool) -> None:
    error = OperationalError("COMMIT", None, pymysql.err.OperationalError(1180, message))
    assert classify(error) == kind
    assert leaves_open(error) is is_open
