"""What this process remembers of its database, to notice that a fail-over has discarded commits.

An asynchronous standby lacks the last commits of its primary, also acknowledged ones. Once it is promoted, nothing in
the database says so: only who remembers a commit can miss it. Therefore each process remembers

* on PostgreSQL: the timeline, and a position in the write-ahead log that its last acknowledged commit is behind. A
  promoted server knows up to where it had replayed the log of the old one; if that is not behind the remembered
  position, the commit is gone.
* on every database: the highest epoch of each lease that it has seen. Epochs never decrease, so a smaller one proves
  that the acquisition was discarded; the next epoch is then issued above the remembered one.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog
from sqlalchemy import Engine, event

from ferroscope.contracts.queue import Clock

_log = structlog.get_logger(__name__)

# Names of leases are given by clients, too.
_MOST_NAMES: Final = 10_000
# A position as a number of bytes. The second value is NULL unless the server was promoted since it was started.
_LOOK: Final = (
    "SELECT ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int, "
    "pg_last_wal_replay_lsn() - '0/0'::pg_lsn"
)
# Sent before COMMIT: what the standby must have received at least when it has received the commit. A transaction that
# has written nothing waits for no standby, so its position says nothing.
POSITION: Final = (
    "SELECT CASE WHEN txid_current_if_assigned() IS NOT NULL THEN pg_current_wal_insert_lsn() - '0/0'::pg_lsn END"
)
# A server is queried once when a connection is opened; it may not have these functions.
_FOLLOWS: Final = "follows the log"


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
            self._lost(
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
            known = self._epochs.get(name, 0)
            if epoch > known:
                self._epochs.pop(name, None)
                self._epochs[name] = epoch  # at the end: it was seen last
                if len(self._epochs) > _MOST_NAMES:
                    del self._epochs[next(iter(self._epochs))]
        if epoch < known:
            self.regressed(name, epoch, known)

    def regressed(self, name: str, epoch: int, known: int) -> None:
        """Report that the database has a smaller epoch of a lease than this process has seen."""
        self._lost(f"the lease {name} has epoch {epoch}, but epoch {known} had been issued")

    def keep(self, epochs: Mapping[str, int]) -> None:
        """Remember the epochs that a committed transaction has issued."""
        for name, epoch in epochs.items():
            self.saw(name, epoch)

    def proofs(self) -> Sequence[str]:
        """Return the last proofs that the database has lost commits, the newest last."""
        return self._proofs

    def _lost(self, what: str) -> None:
        with self._lock:
            self.changed_at = self._clock.monotonic()
            known = what in self._proofs
            if not known:
                self._proofs = [*self._proofs[-9:], what]
        if not known:
            _log.error("the database has lost commits", what=what)


def timeline_of(info: Mapping[str, Any]) -> int:
    """Return the timeline of a connection, from its ``info``; 0 if its position is not followed."""
    return int(info.get(_FOLLOWS, 0))


def _look(memory: Memory, connection: Any, record: Any) -> None:
    import psycopg

    try:
        timeline, replayed = connection.execute(_LOOK, prepare=False).fetchone()
    except (psycopg.errors.FeatureNotSupported, psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedFunction):
        return
    if refused := memory.connected(timeline, None if replayed is None else int(replayed)):
        connection.close()
        raise psycopg.OperationalError(refused)
    record.info[_FOLLOWS] = timeline


def _lsn(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
