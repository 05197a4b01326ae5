"""Statements that a connection has prepared stay prepared, whatever else happens on that connection."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from ferroscope.db import Transaction
from tests.store.conftest import Adapter

# A driver prepares a statement that it gets for the sixth time.
_OFTEN = 8


class RefusedError(Exception):
    """Ends a transaction."""


def test_a_rollback_after_the_drivers_own_statements_keeps_ours(adapter: Adapter) -> None:
    """psycopg removes all prepared statements of a session at a rollback if it has prepared one itself."""

    def work(tx: Transaction) -> None:
        for _ in range(_OFTEN):
            tx.connection.execute(text("SELECT count(*) FROM nodes WHERE name = :name"), {"name": "x"})  # type: ignore[attr-defined]
        raise RefusedError

    for _ in range(_OFTEN):  # BEGIN and COMMIT come often enough to be prepared
        adapter.node()
    for _ in range(3):
        with pytest.raises(RefusedError):
            adapter.write(work)
    adapter.node()
