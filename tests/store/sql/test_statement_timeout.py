"""What takes too long is ended: a statement of SQLite, whose connection goes on, and looking up a server's name."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack

import pytest
from sqlalchemy.exc import OperationalError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.db import Transaction
from ferroscope.db.engine import build_engine
from tests.store.conftest import Adapter, stores
from tests.support import examples
from tests.support.processes import PATIENCE

# It would go on for hours.
_ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000000000) SELECT count(*) FROM n"
)


def test_an_endless_statement_is_ended_and_its_connection_goes_on(sqlite_url: str) -> None:
    with ExitStack() as stack:
        _check(stores(stack, sqlite_url)(statement_timeout=1.0))


def _check(adapter: Adapter) -> None:

    def endless(tx: Transaction) -> None:
        tx.nodes.add(examples.node())
        tx.connection.exec_driver_sql(_ENDLESS).scalar_one()

    with pytest.raises(StoreUnavailableError):
        adapter.write(endless)
    with pytest.raises(StoreUnavailableError):
        adapter.read(lambda tx: tx.connection.exec_driver_sql(_ENDLESS).scalar_one())
    assert adapter.read(lambda tx: tx.nodes.list(Query())) == []
    assert adapter.node().uuid


def test_a_name_server_that_does_not_answer_costs_no_more_than_a_database_that_does_not(
    server_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answered = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answered.wait(PATIENCE) and [])
    url = f"{server_kind}://ferroscope:secret@{server_kind}.example/ferroscope"
    engine = build_engine(DatabaseSettings(connection=url, connect_timeout=1))
    try:
        with pytest.raises(OperationalError, match=f"resolving {server_kind}.example timed out"):
            engine.connect()
    finally:
        answered.set()
        engine.dispose()
