"""Which tables are copied, and which are left behind because they are about processes rather than machines.

All tables that are not named here are copied, so that a new table cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, Connection, Table, and_, func, insert, or_, select, text

from ferroscope.db import schema
from ferroscope.db.mapping import db_now

# What is left behind -> why.
LEFT: Final[dict[Table, str]] = {
    schema.members: "the processes of the source",
    schema.leases: "their holders acquire them again, with higher epochs",
    schema.lease_candidates: "candidates for a lease ask again",
    schema.clock_steps: "of the clock of the source",
    schema.counts: "they are counted again",
    schema.web_sessions: "browsers log in again",
}
# One row, computed for the destination: see ``highest_epoch``.
_FLOOR: Final = schema.lease_epochs
_FLOOR_ID: Final = 1
COPIED: Final = tuple(table for table in schema.metadata.tables.values() if table not in {*LEFT, _FLOOR})
# The first migration puts a row into it.
_NEVER_EMPTY: Final = frozenset({schema.rule_revisions})

_m = schema.members.c
_IS_ALIVE: Final = and_(_m.left_at.is_(None), _m.expires_at > db_now(), _m.expires_at <= db_now() + _m.ttl + 1.0)
_PROCESSES: Final = select(_m.role, _m.host, _m.pid, (_m.expires_at - db_now()).label("left")).order_by(_m.host, _m.pid)


def now(connection: Connection) -> float:
    """Return the database's clock."""
    return float(connection.execute(select(db_now())).scalar_one())


def processes(connection: Connection, since: float | None = None) -> Sequence[Any]:
    """Return role, host, PID, and remaining seconds of each process of the service that is alive.

    Also of those that were started ``since`` then and have ended.
    """
    wanted = _IS_ALIVE if since is None else or_(_IS_ALIVE, _m.started_at >= since)
    return connection.execute(_PROCESSES.where(wanted)).all()


def filled(connection: Connection) -> list[str]:
    """Return which of the copied tables are not empty; those that are left behind may have rows of dead processes."""
    tables = (table for table in COPIED if table not in _NEVER_EMPTY)
    return [table.name for table in tables if connection.execute(select(1).select_from(table).limit(1)).first()]


def keys_in_use(connection: Connection) -> list[str]:
    """Return the IDs of the keys that have encrypted secrets of nodes."""
    return list(connection.execute(select(schema.secret_keys.c.id)).scalars())


def count(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


def highest_epoch(connection: Connection) -> int:
    """Return the highest epoch of any lease, also a forgotten one: the first epoch of every new name is greater."""
    epochs = (connection.execute(select(func.max(table.c.epoch))).scalar() for table in (schema.leases, _FLOOR))
    return max(int(epoch or 0) for epoch in epochs)


def set_highest_epoch(connection: Connection, epoch: int) -> None:
    """Remove all leases, and raise the floor of epochs."""
    epoch = max(epoch, highest_epoch(connection))
    for table in (*LEFT, _FLOOR):
        connection.execute(table.delete())
    connection.execute(insert(_FLOOR), {"id": _FLOOR_ID, "epoch": epoch, "touched": 0})


# Numbers that a database generates: a deleted row's number must not be used again, so the source's counter is copied,
# and not only the highest number that is left.


def serial(table: Table) -> Column[Any] | None:
    """Return the column whose values the database generates."""
    return table.autoincrement_column


def last_number(connection: Connection, table: Table) -> int:
    """Return the last number that the database has generated for the table, or the highest that it has."""
    column: Any = serial(table)
    family = connection.dialect.name
    highest = int(connection.execute(select(func.max(column))).scalar() or 0)
    if family == "sqlite":
        query, parameters = "SELECT seq FROM sqlite_sequence WHERE name = :name", {"name": table.name}
    elif family == "postgresql":
        sequence = connection.execute(_SEQUENCE, {"table": table.name, "column": column.name}).scalar_one()
        query, parameters = f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}", {}  # noqa: S608  # its own name
    else:
        query = (
            "SELECT auto_increment - 1 FROM information_schema.tables "
            "WHERE table_schema = DATABASE() AND table_name = :name"
        )
        parameters = {"name": table.name}
    return max(highest, int(connection.execute(text(query), parameters).scalar() or 0))


_SEQUENCE: Final = text("SELECT pg_get_serial_sequence(:table, :column)")


def set_last_number(connection: Connection, table: Table, number: int) -> None:
    """Let the database continue after ``number``; on MariaDB this commits."""
    if not number:
        return
    family = connection.dialect.name
    if family == "sqlite":
        connection.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
        connection.execute(
            text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :number)"),
            {"name": table.name, "number": number},
        )
    elif family == "postgresql":
        parameters = {"table": table.name, "column": serial(table).name, "number": number}  # type: ignore[union-attr]
        connection.execute(text("SELECT setval(pg_get_serial_sequence(:table, :column), :number)"), parameters)
    else:
        connection.exec_driver_sql(f"ALTER TABLE {table.name} AUTO_INCREMENT = {number + 1:d}")


def largest_packet(connection: Connection) -> int | None:
    """Return how many bytes the protocol allows in a value; None if it has no limit."""
    if connection.dialect.name not in ("mysql", "mariadb"):
        return None
    return int(connection.exec_driver_sql("SELECT @@max_allowed_packet").scalar_one())
