"""The store: it opens transactions, runs units of work in them, and classifies errors.

A unit of work is retried after a conflict (deadlock, serialization failure, lock timeout); if the database is
unreachable, full or read-only, ``StoreUnavailableError`` is raised.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial
from queue import Empty
from typing import Any, Final, TypeVar

import msgspec
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
from ferroscope.db.engine import WAL, Connections, cannot_answer, classify, is_elsewhere, leaves_open, waiting
from ferroscope.db.executor import Statements
from ferroscope.db.replication import POSITION, Memory, timeline_of
from ferroscope.db.senders import Sender, sender_for
from ferroscope.db.session import NO_KEYS
from ferroscope.db.sqlite_lock import write_lock
from ferroscope.db.together import AbandonedError, Together, Unit
from ferroscope.db.transaction import Transaction
from ferroscope.db.wal_sync import WalSync
from ferroscope.secrets.keys import KeyRing

T = TypeVar("T")

# A pooled connection's time of last use, by the monotonic clock.
_USED_AT: Final = "used at"
# Seconds after which an idle connection may have broken unnoticed.
_IDLE: Final = 0.5


class _Work(msgspec.Struct, frozen=True):
    """What to run in a transaction, and what that is for; ``again``: also if the pooled connection was broken."""

    run: Callable[[Transaction], Any]
    write: bool
    durable: bool
    snapshot: bool = True
    again: bool = True


class _Done(msgspec.Struct, frozen=True):
    """What a transaction would return, or has returned; ``ident``: the ID of its receipt, or ""."""

    result: Any
    transaction: Transaction
    ident: str
    receipt: Receipt | None
    is_used: bool


class _UnansweredError(Exception):
    """COMMIT was sent, and not answered."""

    def __init__(self, error: DBAPIError, done: _Done) -> None:
        super().__init__(str(error))
        self.error = error
        self.done = done


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
        self._connections = Connections(engine, size=settings.pool_size, timeout=settings.busy_timeout)
        self._writers: Together[_Work, _Done | None] | None = None
        self._sync = WalSync()
        if engine.dialect.name == "sqlite":  # which allows one writer
            # A thread that waits for the file lock blocks the others, so most of ``busy_timeout`` is for SQLite's own.
            self._writers = Together(self._write_all, write_lock(engine, min(1.0, settings.busy_timeout / 4)))

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls it back.

        ``work`` may be retried from its start (deadlock, serialization failure, lock timeout), so it must not have side
        effects outside the transaction. With ``durable=False`` the commit may be lost if the database crashes (its host
        loses power, or on PostgreSQL its server is killed), but never if a process of ours dies: for claims, heartbeats
        and steps whose loss only repeats work. What others act on as soon as they see it is durable.
        """
        job = _Work(work, write=True, durable=durable)
        try:
            done = self._until_done(lambda: self._attempt(job))
        except _UnansweredError as exc:
            self._find_out(exc)
            done = exc.done
        self.claims.difference_update(done.transaction.ended)
        try:
            if durable and done.is_used and self._writers is not None:
                self._make_durable()
        finally:  # it is committed, durably or not
            for message in sorted(done.transaction.woken):
                self._bus.publish(message)
        result: T = done.result
        return result

    def read(self, work: Callable[[Transaction], T], *, snapshot: bool = True) -> T:
        """Run ``work``, which must not write, on a consistent snapshot.

        Without ``snapshot`` there is no transaction: each statement sees what is committed when it is executed. This
        saves a round trip if ``work`` needs only one.
        """
        job = _Work(work, write=False, durable=False, snapshot=snapshot)
        result: T = self._until_done(lambda: self._attempt(job)).result
        return result

    def _attempt(self, work: _Work) -> _Done:
        """Run ``work`` once; again if the pooled connection was broken and nothing can have been committed."""
        if work.write and self._writers is not None:
            done = self._write_with_others(self._writers, work)
        else:
            done = self._run_alone(work)
        if done is None:
            return self._attempt(msgspec.structs.replace(work, again=False))
        if work.write:
            self._committed(done.transaction)
        return done

    def _run_alone(self, work: _Work) -> _Done | None:
        connection = self._connections.borrow()
        self._sync.log = connection.info.get(WAL, "")
        try:
            return self._run(connection, work)
        finally:
            self._connections.give_back(connection)

    def _write_with_others(self, writers: Together[_Work, _Done | None], work: _Work) -> _Done | None:
        """Write to SQLite, together with the other threads that want to."""
        try:
            return writers.run(work, self._settings.busy_timeout)
        except TimeoutError:
            raise StoreUnavailableError("another thread has held the database's write lock for too long") from None
        except AbandonedError as exc:
            raise OutcomeUnknownError("the thread that wrote was ended; the change may have been stored") from exc

    def _write_all(self, units: Sequence[Unit[_Work, _Done | None]]) -> None:
        """Run all of them in one transaction of SQLite, each under a savepoint; a single one as on any database."""
        if len(units) > 1:
            connection = self._connections.borrow()
            try:
                if self._run_together(connection, units):
                    return
            finally:
                self._connections.give_back(connection)
        for unit in units:
            unit.run(self._run_alone)  # each on a connection that it borrows: the one before may have broken its own

    def _run_together(self, connection: Connection, units: Sequence[Unit[_Work, _Done | None]]) -> bool:
        """Commit all units that do not fail; return False if nothing was committed, and each has to run alone.

        That is so if SQLite has rolled back all of them because of one, or if another connection may be better.
        """
        self._sync.log = connection.info[WAL]
        try:
            executor.begin(connection)
        except DBAPIError as exc:
            if classify(exc) == "busy":
                raise
            executor.rollback(connection)
            return False
        begun: set[str] = set()
        try:
            for unit in units:
                unit.run(partial(self._run_under_savepoint, connection))
                failed = unit.error
                if not executor.is_open(connection) or (isinstance(failed, DBAPIError) and is_elsewhere(failed)):
                    executor.rollback(connection)
                    return False
            for unit in units:
                if unit.error is None and unit.result is not None:
                    begun |= unit.result.transaction.begun
            self.claims.update(begun)
            executor.commit(connection)
        except BaseException:
            self.claims.difference_update(begun)
            executor.rollback(connection)
            raise
        for unit in units:
            if unit.error is None and unit.result is not None:
                self.memory.keep(unit.result.transaction.epochs)
        return True

    def _run_under_savepoint(self, connection: Connection, work: _Work) -> _Done:
        batch = Batch(connection, self._statements, self._send, executor.SAVEPOINT, self._own_clock)
        transaction = self._transaction(connection, batch)
        try:
            done = self._do(transaction, batch, work)
            batch.end(executor.RELEASE)
        except BaseException:
            if batch.begun:
                executor.undo(connection)
            raise
        finally:
            transaction.close()
        return done

    def _run(self, connection: Connection, work: _Work) -> _Done | None:
        """Run ``work`` on this connection; None if that was broken, and the work may be run ``again`` on another."""
        opening = executor.opening(connection, write=work.write, durable=work.durable, snapshot=work.snapshot)
        batch = Batch(connection, self._statements, self._send, opening, self._own_clock)
        transaction = self._transaction(connection, batch)
        try:
            if work.write and self._own_clock is None and self._was_idle(connection):
                batch.flush()
            done = self._do(transaction, batch, work)
            if work.write or work.snapshot:
                self._commit(batch, connection, transaction, durable=work.durable)
        except DBAPIError as exc:
            if work.write and batch.committing and leaves_open(exc):
                connection.invalidate()
                self._connections.suspect_all()
                raise _UnansweredError(exc, done) from exc
            elsewhere = is_elsewhere(exc)
            if classify(exc) != "unavailable" or not (elsewhere or (batch.unanswered and work.again)):
                executor.rollback(connection)
                raise
            connection.invalidate()
            self._connections.suspect_all()
            if not (batch.unanswered and work.again):
                raise
            return None
        except BaseException:
            if batch.begun:
                executor.rollback(connection)
            raise
        finally:
            transaction.close()
        if not connection.invalidated:
            connection.info[_USED_AT] = self._clock.monotonic()
        return done

    def _transaction(self, connection: Connection, batch: Batch) -> Transaction:
        return Transaction(connection, batch, self.claims, self._keys, self._subscriptions, memory=self.memory)

    def _do(self, transaction: Transaction, batch: Batch, work: _Work) -> _Done:
        """Run ``work``, and buffer what else its transaction has to write."""
        if not work.write:
            return _Done(work.run(transaction), transaction, "", None, batch.is_used)
        if (required := PRECONDITION.get()) is not None:
            transaction.require(required)
        result = work.run(transaction)
        transaction.write_rest()
        audited = PENDING.get()
        if audited is not None and not audited.recorded:
            transaction.write_audit(audited)
        receipt, ident = RECEIPT.get(), ""
        if receipt is not None and batch.is_used:
            ident = transaction.receipts.add(receipt)
        return _Done(result, transaction, ident, receipt, batch.is_used)

    def _make_durable(self) -> None:
        """Sync what was committed to SQLite; ``OutcomeUnknownError``."""
        try:
            if self._sync.has_failed:
                self._copy_log()
            self._sync()
        except (OSError, DBAPIError, Empty) as exc:
            self._meter.db_error("unavailable")
            why = getattr(exc, "strerror", None) or exc
            reason = f"the database cannot be synced to the disk: {why}"
            raise OutcomeUnknownError(f"{reason}; the change may have been stored") from exc

    def _copy_log(self) -> None:
        """Copy the log to the database, and sync that: after an error, a sync of the log says nothing any more.

        The kernel reports each error once, and takes what could not be written for written from then on.
        """
        connection = self._connections.borrow()
        try:
            with waiting(connection):
                busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        finally:
            self._connections.give_back(connection)
        if busy:
            raise BlockingIOError(errno.EBUSY, os.strerror(errno.EBUSY))
        self._sync.has_failed = False

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
        ident, receipt, transaction = lost.done.ident, lost.done.receipt, lost.done.transaction
        if not ident or receipt is None or getattr(lost.error.orig, "unreplicated", False):
            raise OutcomeUnknownError(f"{reason}; the change may have been stored") from lost.error
        while True:
            committed = self._is_committed(ident, receipt)
            if committed is False:
                raise StoreUnavailableError(reason) from lost.error
            if committed:
                self.memory.keep(transaction.epochs)
                self._committed(transaction)
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
                copy_context().run(alone, lambda: self._attempt(_Work(void, write=True, durable=True)))
            except RepeatedCallError:
                look = _Work(lambda tx: tx.receipts.get(ident), write=False, durable=False)
                found: Any = self._attempt(look).result
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
