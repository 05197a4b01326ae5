"""Checks of a database server for ``ferroscope doctor``: whether it keeps acknowledged changes, and its standbys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import Settings
from ferroscope.db.connections import GALERA
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
_VARIABLES: Final = text("SHOW GLOBAL VARIABLES WHERE variable_name LIKE 'wsrep%' OR variable_name LIKE 'innodb%'")
_STATUS: Final = text("SHOW GLOBAL STATUS LIKE 'wsrep%'")
_NO_KEY: Final = text(
    "SELECT t.table_name FROM information_schema.tables t LEFT JOIN information_schema.table_constraints c "
    "ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.constraint_type = 'PRIMARY KEY' "
    "WHERE t.table_schema = DATABASE() AND t.table_type = 'BASE TABLE' "
    "AND (c.constraint_name IS NULL OR t.engine <> 'InnoDB')"
)
_SUSPECT: Final = re.compile(r"evs\.suspect_timeout\s*=\s*PT([\d.]+)S")
_IGNORES: Final = re.compile(r"pc\.ignore_(sb|quorum)\s*=\s*(true|yes|on|1)", re.IGNORECASE)
# An inspection with its callback is one transaction; a ramdisk may send megabytes.
_SMALLEST_WRITE_SET: Final = 64 * 1024 * 1024


def durability(backend: Backend) -> Iterator[Finding]:
    """Yield a note on each setting of a server that makes it forget acknowledged changes; ``StoreUnavailableError``."""
    question = _LAX.get(backend.engine.dialect.name.replace("mariadb", "mysql"))
    if question is None:
        return
    with _connect(backend) as connection:
        if GALERA in connection.info:
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
        if GALERA not in connection.info:
            return
        problems = _list_galera_problems(connection, settings.worker.member_ttl)
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


class ReplicationProblem(NamedTuple):
    """A finding about the cluster; ``wrong``: it is an error, and not only worth a note."""

    wrong: bool
    what: str
    advice: str


def _list_galera_problems(connection: Connection, member_ttl: float) -> list[ReplicationProblem]:
    """Return what endangers data or stops the service on this node.

    ``member_ttl``: seconds without a heartbeat after which a process is considered dead.
    """
    read = connection.execute
    settings = {name.lower(): value for name, value in [*read(_VARIABLES), *read(_STATUS)]}
    return list(judge_galera(settings, sorted(read(_NO_KEY).scalars()), member_ttl))


def judge_galera(settings: Mapping[str, str], tables: list[str], member_ttl: float) -> Iterator[ReplicationProblem]:
    """Judge variables and status of a node, and ``tables`` that have no primary key or are not replicated."""
    options = settings.get("wsrep_provider_options", "")
    if settings.get("wsrep_cluster_status") != "Primary":
        yield ReplicationProblem(
            True, "this node is not part of the primary component", "start the other nodes, or see its log"
        )
    if _IGNORES.search(options):
        summary = "pc.ignore_sb or pc.ignore_quorum is set: after a partition both halves accept writes"
        yield ReplicationProblem(True, summary, "remove both from wsrep_provider_options")
    if settings.get("innodb_autoinc_lock_mode") != "2":
        yield ReplicationProblem(
            True, "innodb_autoinc_lock_mode is not 2: nodes deadlock or end", "set innodb_autoinc_lock_mode = 2"
        )
    if settings.get("wsrep_osu_method", "TOI") != "TOI":
        summary = "wsrep_OSU_method is not TOI: an upgrade of the schema changes one node only"
        yield ReplicationProblem(True, summary, "set wsrep_OSU_method = TOI")
    if tables:
        summary = f"tables without a primary key, or not in InnoDB: {', '.join(tables[:5])}"
        yield ReplicationProblem(True, summary, "such tables are not replicated safely: move them to another database")
    if int(settings.get("wsrep_max_ws_size", _SMALLEST_WRITE_SET)) < _SMALLEST_WRITE_SET:
        summary = "wsrep_max_ws_size is less than 64 MiB: large callbacks cannot be stored"
        yield ReplicationProblem(True, summary, "set wsrep_max_ws_size to 2147483647, its default")
    size = int(settings.get("wsrep_cluster_size", 0))
    if size < 3:
        summary = f"the cluster has {size} members: if one fails, the other may not have a majority"
        yield ReplicationProblem(False, summary, "start a third node, or an arbiter (garbd)")
    suspect = _SUSPECT.search(options)
    if suspect is not None and float(suspect[1]) * 2 > member_ttl:
        summary = (
            f"a failed node stops the others for evs.suspect_timeout ({float(suspect[1]):g} s) or longer, "
            f"while members live for [worker] member_ttl ({member_ttl:g} s)"
        )
        yield ReplicationProblem(
            False, summary, "set evs.suspect_timeout = PT1S and evs.inactive_timeout = PT3S in wsrep_provider_options"
        )
