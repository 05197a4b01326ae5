"""What administrators of a database do while the service runs: an outage of a moment, and never the service's end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pymysql
import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import OperationalError, ProgrammingError

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import Transaction
from ferroscope.db.errors import classify
from tests.store.conftest import Adapter, stores
from tests.support import examples


@pytest.fixture
def adapter(server_kind: str, request: pytest.FixtureRequest) -> Iterator[Adapter]:
    """Give a store on a database server."""
    with ExitStack() as stack:
        yield stores(stack, request.getfixturevalue(f"{server_kind}_url"))()


def _added(tx: Transaction) -> None:
    tx.nodes.add(examples.node())


def _run(adapter: Adapter, statement: str) -> None:
    with adapter.store.engine.connect() as connection:
        connection.exec_driver_sql(statement)


def test_a_table_that_is_missing_while_a_backup_is_restored_is_an_outage(adapter: Adapter) -> None:
    adapter.write(_added)
    _run(adapter, "ALTER TABLE nodes RENAME TO nodes_being_restored")
    with pytest.raises(StoreUnavailableError, match="nodes"):
        adapter.write(_added)
    _run(adapter, "ALTER TABLE nodes_being_restored RENAME TO nodes")
    adapter.write(_added)


def test_a_right_that_is_missing_while_tables_are_restored_is_an_outage(postgresql_url: str) -> None:
    with psycopg.connect(make_url(postgresql_url).set(drivername="postgresql").render_as_string(False)) as connection:
        connection.execute("CREATE ROLE restorer")
        connection.execute("SET ROLE restorer")  # whose tables are not ours yet, or no longer; rolled back
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as refused:
            connection.execute("SELECT * FROM nodes")
        connection.rollback()
    assert classify(ProgrammingError("SELECT", None, refused.value)) == "unavailable"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1129, "Host '192.0.2.1' is blocked because of many connection errors"),
        (1203, "User ferroscope already has more than 'max_user_connections' active connections"),
        (1226, "User 'ferroscope' has exceeded the 'max_user_connections' resource (current value: 3)"),
        (1862, "Your password has expired"),
        (4151, "Access denied, this account is locked"),
    ],
)
def test_whatever_a_server_says_to_a_new_connection_is_an_outage(number: int, message: str) -> None:
    assert classify(OperationalError(None, None, pymysql.err.OperationalError(number, message))) == "unavailable"


@pytest.mark.parametrize(
    ("number", "kind"),
    [(1046, "unavailable"), (1142, "unavailable"), (1226, "unavailable"), (1317, "unavailable"), (1412, "busy")],
)
def test_what_an_administrator_does_to_a_statement_is_an_outage(number: int, kind: str) -> None:
    assert classify(OperationalError("SELECT 1", None, pymysql.err.OperationalError(number, "no"))) == kind


def test_a_mistake_in_a_statement_is_no_outage() -> None:
    assert classify(ProgrammingError("SELEC", None, pymysql.err.ProgrammingError(1064, "syntax"))) == "other"
