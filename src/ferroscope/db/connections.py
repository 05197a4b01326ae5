"""The open connections of a store, how it tries to reach a server that is silent, and what it remembers of servers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from queue import Empty
from typing import Any, Final

import structlog
from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.store import Clock

_log = structlog.get_logger(__name__)

# A connection's, to SQLite: the path of its write-ahead log; "" if it has none, as not every file system can.
WAL: Final = "write-ahead log"
# Its row locks are valid on one node of a Galera cluster only.
GALERA: Final = "galera"
_GENERATION: Final = "generation"
# An exchange that fails after this time was not answered. A refusal comes at once and delays no caller, and after a
# fail-over of the database the next attempt may succeed.
_SILENT_SECONDS: Final = 1.0
# Pause between two attempts to reach a server that does not answer.
_RETRY_SECONDS: Final = 1.0


class Breaker:
    """Lets callers fail at once while a server does not answer: one of them tries again each second.

    Otherwise each of many callers would wait for its own time limit, one after the other.
    """

    def __init__(self, dialect: Dialect, clock: Clock) -> None:
        self._dialect = dialect
        self._clock = clock
        self._lock = threading.Lock()
        self._silence: Exception | None = None
        self._retry_at = 0.0

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Connect in this block; ``DBAPIError`` if it is another caller's turn."""
        with self._lock:
            silence, began = self._silence, self._clock.monotonic()
            if silence is not None:
                if began < self._retry_at:
                    kind = self._dialect.loaded_dbapi.Error
                    raise DBAPIError.instance(None, None, silence, kind, dialect=self._dialect)
                self._retry_at = math.inf  # until this caller knows
        failure: DBAPIError | None = None
        try:
            yield
        except DBAPIError as exc:
            failure = exc
            raise
        finally:
            self.note(failure, began)

    def note(self, failure: DBAPIError | None, began: float) -> None:
        """Note whether the exchange that began at this time was answered; ``failure``: it ended with the connection."""
        now = self._clock.monotonic()
        with self._lock:
            self._silence = failure.orig if failure and now - began >= _SILENT_SECONDS else None
            self._retry_at = now + _RETRY_SECONDS


class ConnectionPool:
    """The open connections of one engine: at most ``size``, most recently used first.

    SQLAlchemy's pool, with a new ``Connection`` for each checkout, costs as much CPU time as a short transaction.

    When a server fails, all idle connections break. The first one found broken makes all older ones stale: each is
    reopened before its next use, instead of failing or timing out one by one. Connections that are lent are not
    affected.
    """

    def __init__(self, engine: Engine, *, size: int, timeout: float, clock: Clock) -> None:
        self._engine = engine
        self._timeout = timeout
        self.log = ""  # the write-ahead log of SQLite
        # A file always answers; a caller that waits for its lock need not keep others from trying.
        self._breaker = None if engine.dialect.name == "sqlite" else Breaker(engine.dialect, clock)
        self._generation = 0
        self._free: list[Connection | None] = [None] * size  # the most recently used one is last; None: not open yet
        self._returned = threading.Condition()
        self._waiting = 0
        event.listen(engine, "engine_disposed", self._close)

    def borrow(self) -> Connection:
        """Return a connection, to be given back; ``queue.Empty`` if none became free within the timeout."""
        try:
            connection = self._free.pop()  # atomic
        except IndexError:
            connection = self._wait()
        try:
            if connection is not None and connection.info[_GENERATION] != self._generation:
                _discard(connection)
                connection = None
            if connection is None:
                connection = self._open()
        except BaseException:
            self._free.append(connection)
            self._notify()
            raise
        return connection

    def _open(self) -> Connection:
        with nullcontext() if self._breaker is None else self._breaker.attempt():
            connection = self._engine.connect()
        connection.info[_GENERATION] = self._generation
        self.log = connection.info.get(WAL, "")
        if self.log:
            try:
                connection.exec_driver_sql("PRAGMA synchronous=NORMAL")  # the store syncs: see ``sqlite.WalSync``
            except BaseException:
                _discard(connection)
                raise
        return connection

    def give_back(self, connection: Connection) -> None:
        """Let others use the connection; what is left of a transaction in it is rolled back."""
        kept: Connection | None = connection
        try:
            # A driver closes its connection by itself if the server has ended it after the last answer.
            if connection.invalidated or getattr(connection.connection.dbapi_connection, "closed", False):
                kept = None
                _discard(connection)
            elif connection.in_transaction():  # SQLAlchemy's, nothing is sent
                connection.rollback()
        finally:
            self._free.append(kept)
            # A thread that starts to wait after this sees the connection: it looks again once it is counted.
            if self._waiting:
                self._notify()

    def _notify(self) -> None:
        with self._returned:
            self._returned.notify()

    def _wait(self) -> Connection | None:
        deadline = time.monotonic() + self._timeout
        with self._returned:
            self._waiting += 1
            try:
                while True:
                    try:
                        return self._free.pop()
                    except IndexError:
                        left = deadline - time.monotonic()
                        if left <= 0:
                            raise Empty from None
                        self._returned.wait(left)
            finally:
                self._waiting -= 1

    def suspect_all(self) -> None:
        """Replace every currently open connection before its next use."""
        self._generation += 1

    def note_loss(self, failure: DBAPIError, began: float) -> None:
        """Note that a connection ended with ``failure`` during the exchange that began at this time."""
        if self._breaker is not None:
            self._breaker.note(failure, began)

    def _close(self, _engine: Engine) -> None:
        self.suspect_all()
        for _ in range(len(self._free)):
            try:
                connection = self._free.pop()
            except IndexError:  # another thread was faster
                return
            if connection is not None:
                _discard(connection)
            self._free.insert(0, None)


def _discard(connection: Connection) -> None:
    connection.invalidate()
    connection.close()


# Commits that a fail-over has discarded.
#
# An asynchronous standby lacks the last commits of its primary, also acknowledged ones. Once it is promoted, nothing in
# the database says so: only a process that remembers a commit can miss it. Therefore each process remembers
#
# * on PostgreSQL: the timeline, and a position in the write-ahead log that its last acknowledged commit is behind. A
#   promoted server knows up to where it had replayed the log of the old one; if that is not behind the remembered
#   position, the commit is gone.
# * on every database: the highest epoch of each lease that it has seen. Epochs never decrease, so a smaller one proves
#   that the acquisition was discarded; the next epoch is then issued above the remembered one.

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
