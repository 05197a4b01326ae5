"""A MariaDB Galera cluster: what each session needs, and which settings of the server are wrong.

All nodes accept writes, and each commit is certified against those of the other nodes: a transaction that changed the
same row loses with a deadlock error, and is retried. Three things differ from a single server:

* A node applies the others' commits later. With ``wsrep_sync_wait`` a transaction begins when everything is applied
  that was committed anywhere before, so a process sees its own writes on whichever node it reads.
* ``SELECT ... FOR UPDATE`` locks on one node only, and is not certified. The row must be written: see ``nodes``.
* A node without the majority refuses everything with error 1047; the connection must be opened again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Engine, event, text

_ON: Final = "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'"
# Bit 1: the beginning of a transaction, and a SELECT outside of one. Each of our transactions begins explicitly.
_CAUSAL: Final = "SET SESSION wsrep_sync_wait = 1"
_GALERA: Final = "galera"

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


class Problem(NamedTuple):
    """``wrong`` or only worth a note; what it is, and what to do."""

    wrong: bool
    what: str
    advice: str


def watch(engine: Engine) -> None:
    """Prepare each new connection of this engine, if it leads to a node of a Galera cluster."""
    event.listen(engine, "connect", _prepare)


def _prepare(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(_ON)
    row = cursor.fetchone()  # none on a server without Galera's interface, such as MySQL
    if row is not None and row[1] == "ON":
        cursor.execute(_CAUSAL)
        record.info[_GALERA] = True
    cursor.close()


def certifies(connection: Connection) -> bool:
    """Whether row locks of this connection are valid on one node only."""
    return bool(connection.info.get(_GALERA))


def problems(connection: Connection, member_ttl: float) -> list[Problem]:
    """Return what endangers data or stops the service on this node.

    ``member_ttl``: seconds without a heartbeat after which a process is considered dead.
    """
    read = connection.execute
    settings = {name.lower(): value for name, value in [*read(_VARIABLES), *read(_STATUS)]}
    return list(judged(settings, sorted(read(_NO_KEY).scalars()), member_ttl))


def judged(settings: Mapping[str, str], tables: list[str], member_ttl: float) -> Iterator[Problem]:
    """Judge variables and status of a node, and ``tables`` that have no primary key or are not replicated."""
    options = settings.get("wsrep_provider_options", "")
    if settings.get("wsrep_cluster_status") != "Primary":
        yield Problem(True, "this node is not part of the primary component", "start the other nodes, or see its log")
    if _IGNORES.search(options):
        what = "pc.ignore_sb or pc.ignore_quorum is set: after a partition both halves accept writes"
        yield Problem(True, what, "remove both from wsrep_provider_options")
    if settings.get("innodb_autoinc_lock_mode") != "2":
        yield Problem(
            True, "innodb_autoinc_lock_mode is not 2: nodes deadlock or end", "set innodb_autoinc_lock_mode = 2"
        )
    if settings.get("wsrep_osu_method", "TOI") != "TOI":
        what = "wsrep_OSU_method is not TOI: an upgrade of the schema changes one node only"
        yield Problem(True, what, "set wsrep_OSU_method = TOI")
    if tables:
        what = f"tables without a primary key, or not in InnoDB: {', '.join(tables[:5])}"
        yield Problem(True, what, "such tables are not replicated safely: move them to another database")
    if int(settings.get("wsrep_max_ws_size", _SMALLEST_WRITE_SET)) < _SMALLEST_WRITE_SET:
        what = "wsrep_max_ws_size is less than 64 MiB: large callbacks cannot be stored"
        yield Problem(True, what, "set wsrep_max_ws_size to 2147483647, its default")
    size = int(settings.get("wsrep_cluster_size", 0))
    if size < 3:
        what = f"the cluster has {size} members: if one fails, the other may not have a majority"
        yield Problem(False, what, "start a third node, or an arbiter (garbd)")
    suspect = _SUSPECT.search(options)
    if suspect is not None and float(suspect[1]) * 2 > member_ttl:
        what = (
            f"a failed node stops the others for evs.suspect_timeout ({float(suspect[1]):g} s) or longer, "
            f"while members live for [worker] member_ttl ({member_ttl:g} s)"
        )
        yield Problem(
            False, what, "set evs.suspect_timeout = PT1S and evs.inactive_timeout = PT3S in wsrep_provider_options"
        )
