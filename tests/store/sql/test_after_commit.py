"""What PostgreSQL is sent after COMMIT, in the same message: its errors are nobody's."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import insert

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.store import Query
from ferroscope.db import postgresql, schema
from ferroscope.db.executor import COMMIT, SqlCommand
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples

_ROW = {"id": "r", "call": "", "void": False, "status": 0, "expires_at": 1e12, "reply": ""}


@pytest.fixture
def backend(postgresql_url: str) -> Iterator[Backend]:
    settings = Settings(database=DatabaseSettings(connection=postgresql_url))
    opened = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
    yield opened
    opened.close()


def test_an_error_at_the_end_of_the_message_costs_nobody_a_connection(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full queue of notifications is found when NOTIFY's own transaction ends, as is a deferred constraint."""
    store = backend.store
    with store.engine.connect() as connection:
        connection.exec_driver_sql("CREATE TABLE once (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        connection.exec_driver_sql("INSERT INTO once VALUES (1)")
    again = SqlCommand("INSERT INTO once VALUES (1)", None, answers=False)
    monkeypatch.setattr(postgresql, "closing", lambda _woken: (COMMIT, again))
    store.write(lambda tx: (tx.nodes.add(examples.node(name="first")), tx.woken.add("others")))
    monkeypatch.undo()
    for number in range(3):  # each is one message, with BEGIN and COMMIT
        row = _ROW | {"id": f"r{number}"}
        store.write(lambda tx, row=row: tx.ask(insert(schema.receipts), row) and None)  # type: ignore[misc]
    assert [node.name for node in store.read(lambda tx: tx.nodes.list(Query()))] == ["first"]
    assert all(store.read(lambda tx, n=n: tx.receipts.get(f"r{n}")) for n in range(3))  # type: ignore[misc]
