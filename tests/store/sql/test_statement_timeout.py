"""A statement of SQLite that takes too long is ended; its connection goes on."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.db.transaction import Transaction
from tests.store.conftest import Adapter, stores
from tests.support import examples

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
