"""The store: it opens transactions, runs units of work in them, and classifies errors.

A unit of work is retried after a conflict (deadlock, serialization failure, lock timeout); if the database is
unreachable, full or read-only, ``StoreUnavailableError`` is raised.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import Empty
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.contracts.events import PENDING
from ferroscope.contracts.queue import Clock, Publisher, StopFlag
from ferroscope.contracts.receipts import RECEIPT, Receipt, RepeatedCallError
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.notification import Subscription
from ferroscope.db import executor
from ferroscope.db.batch import Batch
from ferroscope.db.engine import Connections, cannot_answer, classify, is_elsewhere, leaves_open
from ferroscope.db.executor import Statements
from ferroscope.db.replication import POSITION, Memory, timeline_of
from ferroscope.db.senders import Sender, sender_for
from ferroscope.db.session import NO_KEYS
from ferroscope.db.sqlite_lock import SqliteWriteLock
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.keys import KeyRing

T = TypeVar("T")

# A pooled connection's time of last use, by the monotonic clock.
_USED_AT: Final = "used at"
# Seconds after which an idle connection may have broken unnoticed.
_IDLE: Final = 0.5


class _UnansweredError(Exception):
    """COMMIT was sent, and not answered: what the transaction would have returned, and the ID of its receipt, or ""."""

    def __init__(
        self, error: DBAPIError, result: Any, transaction: Transaction, ident: str, receipt: Receipt | None
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.result = result
        self.transaction = transaction
        self.ident = ident
        self.receipt = receipt


class Store:
    """Runs units of work. Both calls raise ``StoreUnavailableError`` if the store is unavailable.

    Related changes are written by one ``write``, which is atomic. After it has returned, they are durable, unless it
    was told otherwise: they survive the crash of any process and, depending on the database's configuration, of its
    host.

    After a ``StoreUnavailableError`` nothing was changed, except if it is an ``OutcomeUnknownError``. That is raised
    where the answer to COMMIT was lost; under a ``receipts.RECEIPT`` only if it could not be found out what became of
    it.

    Writes may be sent to the store only with the next read, or at the end of the unit of work. So their errors are
    raised then, not by the call that writes; they always abort the unit of work.

    ``stop`` shortens the waits between retries.

    ``keys`` encrypt secrets of nodes; ``subscriptions`` say which targets get which events.

    ``memory`` is shared by the stores of a process. ``claims`` are the tokens of the claims that this process holds, as
    far as it knows; the queue adds them.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        settings: DatabaseSettings,
        bus: Publisher,
        clock: Clock,
        stop: StopFlag,
        meter: Meter = SILENT,
        keys: KeyRing = NO_KEYS,
        subscriptions: Sequence[Subscription] = (),
        memory: Memory | None = None,
    ) -> None:
        self.engine = engine
        self.memory = memory or Memory(clock)
        self._keys = keys
        self._subscriptions = subscriptions
        self._statements = Statements(engine)
        self._send: Sender = sender_for(engine.dialect.driver)
        # SQLite's clock is this host's; servers return theirs with BEGIN.
        self._own_clock = clock.time if engine.dialect.name == "sqlite" else None
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._meter = meter
        self.claims: set[str] = set()
        # SQLite allows one writer: threads of this process wait here instead of polling for the file lock.
        self._writer = threading.Lock() if engine.dialect.name == "sqlite" else None
        # A thread that waits for the file lock blocks the others, so most of ``busy_timeout`` is for SQLite's own lock.
        self._write_lock = _write_lock(engine, min(1.0, settings.busy_timeout / 4))
        self._connections = Connections(engine, size=settings.pool_size, timeout=settings.busy_timeout)

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls it back.

        ``work`` may be retried from its start (deadlock, serialization failure, lock timeout), so it must not have side
        effects outside the transaction. With ``durable=False`` the commit may be lost if the database crashes (its host
        loses power, or on PostgreSQL its server is killed), but never if a process of ours dies: for claims, heartbeats
        and steps whose loss only repeats work. What others act on as soon as they see it is durable.
        """
        try:
            result, transaction = self._until_done(lambda: self._attempt(work, write=True, durable=durable))
        except _UnansweredError as exc:
            self._find_out(exc)
            result, transaction = exc.result, exc.transaction
        self.claims.difference_update(transaction.ended)
        for message in sorted(transaction.woken):
            self._bus.publish(message)
        return result

    def read(self, work: Callable[[Transaction], T], *, snapshot: bool = True) -> T:
        """Run ``work``, which must not write, on a consistent snapshot.

        Without ``snapshot`` there is no transaction: each statement sees what is committed when it is executed. This
        saves a round trip if ``work`` needs only one.
        """
        result, _ = self._until_done(lambda: self._attempt(work, write=False, durable=False, snapshot=snapshot))
        return result

    def _attempt(
        self,
        work: Callable[[Transaction], T],
        *,
        write: bool,
        durable: bool,
        snapshot: bool = True,
        again: bool = True,
    ) -> tuple[T, Transaction]:
        """Run ``work`` once; again if the pooled connection was broken and nothing can have been committed."""
        has_lock = write and self._writer is not None and self._take_turn(self._writer)
        try:
            connection = self._connections.borrow()
            try:
                done = self._run(connection, work, write=write, durable=durable, snapshot=snapshot, again=again)
            finally:
                self._connections.give_back(connection)
        finally:
            if write and self._writer is not None:
                self._end_turn(self._writer, has_lock=has_lock)
        if done is None:
            return self._attempt(work, write=write, durable=durable, snapshot=snapshot, again=False)
        if write:
            self._committed(done[1])
        return done

    def _run(
        self,
        connection: Connection,
        work: Callable[[Transaction], T],
        *,
        write: bool,
        durable: bool,
        snapshot: bool,
        again: bool,
    ) -> tuple[T, Transaction] | None:
        """Run ``work`` on this connection; None if that was broken, and the work may be run ``again`` on another."""
        opening = executor.opening(connection, write=write, durable=durable, snapshot=snapshot)
        batch = Batch(connection, self._statements, self._send, opening, self._own_clock)
        transaction = Transaction(
            connection,
            batch,
            self.claims,
            self._keys,
            self._subscriptions,
            memory=self.memory,
        )
        try:
            if write and self._own_clock is None and self._was_idle(connection):
                batch.flush()
            if write and (required := PRECONDITION.get()) is not None:
                transaction.require(required)
            result = work(transaction)
            transaction.write_rest()
            audited = PENDING.get() if write else None
            if audited is not None and not audited.recorded:
                transaction.write_audit(audited)
            receipt, ident = RECEIPT.get() if write else None, ""
            if receipt is not None and batch.is_used:
                ident = transaction.receipts.add(receipt)
            if write or snapshot:
                self._commit(batch, connection, transaction, durable=durable)
        except DBAPIError as exc:
            if write and batch.committing and leaves_open(exc):
                connection.invalidate()
                self._connections.suspect_all()
                raise _UnansweredError(exc, result, transaction, ident, receipt) from exc
            elsewhere = is_elsewhere(exc)
            if classify(exc) != "unavailable" or not (elsewhere or (batch.unanswered and again)):
                executor.rollback(connection)
                raise
            connection.invalidate()
            self._connections.suspect_all()
            if not (batch.unanswered and again):
                raise
            return None
        except BaseException:
            if batch.begun:
                executor.rollback(connection)
            raise
        finally:
            transaction.close()
        connection.info[_USED_AT] = self._clock.monotonic()
        return result, transaction

    def _committed(self, transaction: Transaction) -> None:
        """Let others know what was committed."""
        if (audited := PENDING.get()) is not None:
            audited.recorded = True
        if (receipt := RECEIPT.get()) is not None and "receipts" in transaction.used:
            receipt.written = True
        for moved in transaction.transitions:
            self._meter.moved(moved)
        self._meter.hardware_changed(transaction.hardware_changes)

    def _find_out(self, lost: _UnansweredError) -> None:
        """Find out what became of a transaction whose COMMIT was not answered; return if it is committed.

        A void receipt with its ID is written over a new connection. It waits for the transaction if that is still under
        way, it conflicts with its receipt if it was committed, and keeps it from being committed later otherwise.
        """
        self._meter.db_error("unavailable")
        reason = cannot_answer(self.engine.url, lost.error)
        deadline = self._clock.monotonic() + self._settings.busy_timeout
        if not lost.ident or lost.receipt is None or getattr(lost.error.orig, "unreplicated", False):
            raise OutcomeUnknownError(f"{reason}; the change may have been stored") from lost.error
        while True:
            committed = self._is_committed(lost.ident, lost.receipt)
            if committed is False:
                raise StoreUnavailableError(reason) from lost.error
            if committed:
                self.memory.keep(lost.transaction.epochs)
                self._committed(lost.transaction)
                return
            if self._clock.monotonic() > deadline or self._stop.wait(self._settings.retry_interval):
                raise OutcomeUnknownError(f"{reason}; the change may have been stored") from lost.error

    def _is_committed(self, ident: str, receipt: Receipt) -> bool | None:
        """Return whether the transaction with this receipt was committed; None if that cannot be said now."""

        def void(tx: Transaction) -> None:
            tx.receipts.void(ident, receipt.call, receipt.kept)

        def alone(attempt: Callable[[], T]) -> T:
            for variable in (PENDING, RECEIPT, PRECONDITION):
                variable.set(None)
            return attempt()

        try:
            try:
                copy_context().run(alone, lambda: self._attempt(void, write=True, durable=True))
            except RepeatedCallError:
                found, _ = self._attempt(lambda tx: tx.receipts.get(ident), write=False, durable=False)
                return found is not None and not found.void
        except (DBAPIError, Empty, StoreUnavailableError, _UnansweredError):
            return None
        return False

    def _was_idle(self, connection: Connection) -> bool:
        """Whether the connection has been idle for a while: then BEGIN is sent separately.

        If the first exchange on a broken connection contained COMMIT, it would be unknown whether the server received
        it, and the work could not be retried.
        """
        used_at: float = connection.info.get(_USED_AT, float("-inf"))
        return self._clock.monotonic() - used_at > _IDLE

    def _commit(self, batch: Batch, connection: Connection, transaction: Transaction, *, durable: bool) -> None:
        # Before COMMIT: as soon as it takes effect, the queue would release a claim that is not among ``claims``.
        self.claims.update(transaction.begun)
        try:
            timeline = timeline_of(connection.info) if durable else 0
            position = batch.end(executor.closing(connection, transaction.woken), POSITION if timeline else "")
        except BaseException:
            self.claims.difference_update(transaction.begun)
            raise
        if position is not None:
            self.memory.committed(timeline, position)
        self.memory.keep(transaction.epochs)

    def _until_done(self, attempt: Callable[[], T]) -> T:
        deadline = self._clock.monotonic() + self._settings.busy_timeout
        delay = self._settings.retry_interval / 64
        while True:
            try:
                return attempt()
            except Empty as exc:
                self._meter.db_error("unavailable")
                raise StoreUnavailableError("all database connections are in use") from exc
            except DBAPIError as exc:
                kind = classify(exc)
                if kind == "other":
                    raise
                self._meter.db_error(kind)
                if kind == "unavailable" or self._clock.monotonic() > deadline:
                    raise StoreUnavailableError(cannot_answer(self.engine.url, exc)) from exc
            pause = delay * random.uniform(0.5, 1.5)  # noqa: S311  # jitter, no secret
            if self._stop.wait(pause):  # a stopping process still retries its last writes, without a busy loop
                time.sleep(pause)
            delay = min(delay * 2, self._settings.retry_interval)

    def _take_turn(self, writer: threading.Lock) -> bool:
        """Wait until this thread may write; return whether it has the lock file, which it may have to do without."""
        if not writer.acquire(timeout=self._settings.busy_timeout):
            raise StoreUnavailableError("another thread has held the database's write lock for too long")
        try:
            return self._write_lock is not None and self._write_lock.acquire()
        except BaseException:
            writer.release()
            raise

    def _end_turn(self, writer: threading.Lock, *, has_lock: bool) -> None:
        try:
            if has_lock and self._write_lock is not None:
                self._write_lock.release()
        finally:
            writer.release()


def _write_lock(engine: Engine, timeout: float) -> SqliteWriteLock | None:
    file = engine.url.database
    if engine.dialect.name != "sqlite" or not file or file == ":memory:":
        return None
    return SqliteWriteLock(f"{file}-writelock", timeout)
