"""Checks of a database server for ``ferroscope doctor``: whether it keeps acknowledged changes, and its standbys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import Settings
from ferroscope.db import replication
from ferroscope.db.errors import to_unavailable_error
from ferroscope.runtime.backend import Backend
from ferroscope_client.core.finding import Finding

# The number of connected standbys of each kind. Without the role pg_monitor, their state is hidden and unknown. The
# last column: whether commits wait for a synchronous one.
_STANDBYS: Final = (
    "SELECT count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state = 'async'), "
    "count(*) FILTER (WHERE sync_state IS NULL), current_setting('synchronous_standby_names') <> '' "
    "FROM pg_stat_replication"
)
# Settings, as in our sessions, with which a server acknowledges changes before its host has stored them. In a Galera
# cluster, the other nodes have stored them.
_LAX: Final = {
    "postgresql": (
        "SELECT name, setting FROM pg_settings "
        "WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'"
    ),
    "mysql": "SHOW GLOBAL VARIABLES WHERE variable_name = 'innodb_flush_log_at_trx_commit' AND value <> '1'",
}


def durability(backend: Backend) -> Iterator[Finding]:
    """Yield a note on each setting of a server that makes it forget acknowledged changes; ``StoreUnavailableError``."""
    question = _LAX.get(backend.engine.dialect.name.replace("mariadb", "mysql"))
    if question is None:
        return
    with _connect(backend) as connection:
        if replication.is_galera(connection):
            return
        variables = connection.exec_driver_sql(question).all()
    for name, value in variables:
        summary = f"the database has {name} = {value}: a failure of its host loses the last acknowledged changes"
        advice = f"unless that is intended, set {name} = {'1' if name.startswith('innodb') else 'on'}"
        yield Finding("durability", "note", summary, advice)


def cluster(settings: Settings, backend: Backend) -> Iterator[Finding]:
    """Yield the findings; nothing for a single server. ``StoreUnavailableError``."""
    if backend.engine.dialect.name in ("mysql", "mariadb"):
        yield from _galera(settings, backend)
    elif backend.engine.dialect.name == "postgresql":
        yield from _postgresql(backend)


@contextmanager
def _connect(backend: Backend) -> Iterator[Connection]:
    try:
        with backend.engine.connect() as connection:
            yield connection
    except DBAPIError as exc:
        raise to_unavailable_error(backend.engine.url, exc) from exc


def _galera(settings: Settings, backend: Backend) -> Iterator[Finding]:
    with _connect(backend) as connection:
        if not replication.is_galera(connection):
            return
        problems = replication.galera_problems(connection, settings.worker.member_ttl)
    for wrong, summary, advice in problems:
        yield Finding("galera", "wrong" if wrong else "note", f"Galera: {summary}", advice)
    if not problems:
        yield Finding("galera", "ok", "the Galera cluster has the settings that are required")


def _postgresql(backend: Backend) -> Iterator[Finding]:
    with _connect(backend) as connection:
        synchronous, asynchronous, hidden, required = connection.exec_driver_sql(_STANDBYS).one()
    if hidden:
        return
    if asynchronous and not synchronous:
        yield Finding(
            "standby",
            "note",
            "PostgreSQL has only asynchronous standbys: a fail-over loses the last acknowledged commits",
            "set synchronous_standby_names on the primary",
        )
    elif required and not synchronous:
        yield Finding(
            "standby",
            "wrong",
            "PostgreSQL requires a synchronous standby, and none is connected: every commit waits",
            "start the standby, or change synchronous_standby_names",
        )
    elif synchronous:
        yield Finding("standby", "ok", "PostgreSQL has a synchronous standby")
