"""Databases on several servers: settings of a MariaDB Galera cluster, and commits that a fail-over has discarded.

On Galera all nodes accept writes, and each commit is certified against those of the other nodes: a transaction that
changed the same row loses with a deadlock error, and is retried. Four things differ from a single server:

* A node applies the others' commits later. With ``wsrep_sync_wait`` a transaction begins when everything is applied
  that was committed anywhere before, so a process sees its own writes on whichever node it reads.
* ``SELECT ... FOR UPDATE`` locks on one node only, and is not certified. The row must be written: see ``nodes``.
* A transaction that loses between two statements of one text is reported at the end of the text only, after the rest of
  it was executed. So each statement is sent by itself: see ``mariadb.send``.
* A node without the majority refuses everything with error 1047; the connection must be opened again.

An asynchronous standby lacks the last commits of its primary, also acknowledged ones. Once it is promoted, nothing in
the database says so: only a process that remembers a commit can miss it. Therefore each process remembers

* on PostgreSQL: the timeline, and a position in the write-ahead log that its last acknowledged commit is behind. A
  promoted server knows up to where it had replayed the log of the old one; if that is not behind the remembered
  position, the commit is gone.
* on every database: the highest epoch of each lease that it has seen. Epochs never decrease, so a smaller one proves
  that the acquisition was discarded; the next epoch is then issued above the remembered one.
"""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import structlog
from sqlalchemy import Connection, Engine, event, text

from ferroscope.contracts.store import Clock
from ferroscope.db.spellings import MIN_PACKET_BYTES

_ASKED: Final = "SHOW GLOBAL VARIABLES WHERE variable_name IN ('wsrep_on', 'max_allowed_packet')"
# Bit 1: the beginning of a transaction, and a SELECT outside of one. Each of our transactions begins explicitly.
_CAUSAL: Final = "SET SESSION wsrep_sync_wait = 1"
# A connection's: its row locks are valid on one node only.
GALERA: Final = "galera"
_PACKET_TOO_BIG: Final = 1153  # the server's own number for it

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


class ReplicationProblem(NamedTuple):
    """A finding about the cluster; ``wrong``: it is an error, and not only worth a note."""

    wrong: bool
    what: str
    advice: str


def watch_galera(engine: Engine) -> None:
    """Prepare each new connection of this engine, if it leads to a node of a Galera cluster.

    A server that would refuse the largest statements is refused: callbacks would fail one day, and nothing else.
    """
    event.listen(engine, "connect", _prepare)


def _prepare(connection: Any, record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(_ASKED)
    variables = dict(cursor.fetchall())  # a server without Galera's interface, such as MySQL, has one of the two
    if (largest := int(variables["max_allowed_packet"])) < MIN_PACKET_BYTES:
        raise connection.OperationalError(
            _PACKET_TOO_BIG,
            f"max_allowed_packet of the server is {largest}, and large inventories need {MIN_PACKET_BYTES}; set "
            f"max_allowed_packet = {MIN_PACKET_BYTES // 1024 // 1024}M in its configuration",
        )
    if variables.get("wsrep_on") == "ON":
        cursor.execute(_CAUSAL)
        record.info[GALERA] = True
    cursor.close()


def is_galera(connection: Connection) -> bool:
    """Whether row locks of this connection are valid on one node only."""
    return GALERA in connection.info


def galera_problems(connection: Connection, member_ttl: float) -> list[ReplicationProblem]:
    """Return what endangers data or stops the service on this node.

    ``member_ttl``: seconds without a heartbeat after which a process is considered dead.
    """
    read = connection.execute
    settings = {name.lower(): value for name, value in [*read(_VARIABLES), *read(_STATUS)]}
    return list(judge(settings, sorted(read(_NO_KEY).scalars()), member_ttl))


def judge(settings: Mapping[str, str], tables: list[str], member_ttl: float) -> Iterator[ReplicationProblem]:
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


_log = structlog.get_logger(__name__)

# Clients choose names of leases, too.
_MOST_NAMES: Final = 10_000
# A position as a number of bytes. The second value is NULL unless the server was promoted since it was started.
_LOOK: Final = (
    "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int, "
    "pg_last_wal_replay_lsn() - '0/0'::pg_lsn"
)
# Sent before COMMIT: a standby that has received the commit has received this position, too. A transaction that has
# written nothing does not wait for a standby, so its position proves nothing.
POSITION: Final = (
    "SELECT CASE WHEN txid_current_if_assigned() IS NOT NULL THEN pg_current_wal_insert_lsn() - '0/0'::pg_lsn END"
)
# A connection's timeline, if its position is followed. A server is queried once when a connection is opened; it may not
# have these functions.
FOLLOWS: Final = "follows the log"


class Memory:
    """Shared by all connections of a process; ``watch`` their engines. All methods may be called by any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._epochs: dict[str, int] = {}
        self._timeline = 0
        self._position = -1  # the last acknowledged commit is behind it; -1: none on this timeline
        self._proofs: list[str] = []
        # The monotonic time of the last fail-over or loss that was noticed.
        self.changed_at = -math.inf

    def watch(self, engine: Engine) -> None:
        """Look at the timeline of each server to which the engine connects; engines of other databases do not."""
        if engine.dialect.driver == "psycopg":
            event.listen(engine, "connect", partial(_look, self))

    def connected(self, timeline: int, replayed: int | None) -> str:
        """Compare a server with what is remembered; return why it must not be used, or "".

        ``replayed``: up to which position a promoted server had replayed the log of its primary; None if unknown.
        """
        with self._lock:
            before, position = self._timeline, self._position
            if timeline < before:
                return (
                    f"the server is on timeline {timeline}, but this process has used timeline {before}: "
                    "it is an old primary that must not be used"
                )
            if timeline == before:
                return ""
            self._timeline, self._position = timeline, -1
            if not before:
                return ""
            self.changed_at = self._clock.monotonic()
        _log.warning("the database has failed over", timeline=timeline, before=before)
        if replayed is not None and 0 <= replayed <= position:
            self._report_loss(
                f"commits that were acknowledged on timeline {before} are missing on timeline {timeline}: "
                f"the standby had replayed the log up to {_lsn(replayed)}, a commit was behind {_lsn(position)}"
            )
        return ""

    def committed(self, timeline: int, position: int) -> None:
        """Remember that a commit behind this position was acknowledged."""
        with self._lock:
            if timeline == self._timeline:
                self._position = max(self._position, position)

    def epoch_of(self, name: str) -> int:
        """Return the highest epoch that this process has seen of a lease; 0: none."""
        return self._epochs.get(name, 0)

    def saw(self, name: str, epoch: int) -> None:
        """Remember the committed epoch of a lease; report if it is smaller than a remembered one."""
        with self._lock:
            known_epoch = self._epochs.get(name, 0)
            if epoch > known_epoch:
                self._epochs.pop(name, None)
                self._epochs[name] = epoch  # at the end: it was seen last
                if len(self._epochs) > _MOST_NAMES:
                    del self._epochs[next(iter(self._epochs))]
        if epoch < known_epoch:
            self.regressed(name, epoch, known_epoch)

    def regressed(self, name: str, epoch: int, known_epoch: int) -> None:
        """Report that the database has a smaller epoch of a lease than this process has seen."""
        self._report_loss(f"the lease {name} has epoch {epoch}, but epoch {known_epoch} had been issued")

    def keep(self, epochs: Mapping[str, int]) -> None:
        """Remember the epochs that a committed transaction has issued."""
        for name, epoch in epochs.items():
            self.saw(name, epoch)

    def proofs(self) -> Sequence[str]:
        """Return the last proofs that the database has lost commits, the newest last."""
        return self._proofs

    def _report_loss(self, proof: str) -> None:
        with self._lock:
            self.changed_at = self._clock.monotonic()
            is_known = proof in self._proofs
            if not is_known:
                self._proofs = [*self._proofs[-9:], proof]
        if not is_known:
            _log.error("the database has lost commits", what=proof)


def _look(memory: Memory, connection: Any, record: Any) -> None:
    import psycopg

    try:
        timeline, replayed = connection.execute(_LOOK, prepare=False).fetchone()
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction):
        return
    if refused := memory.connected(timeline, None if replayed is None else int(replayed)):
        connection.close()
        raise psycopg.OperationalError(refused)
    record.info[FOLLOWS] = timeline


def _lsn(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
