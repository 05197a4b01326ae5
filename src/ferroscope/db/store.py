"""The store: it runs units of work, each in a transaction, and classifies errors.

A unit of work is retried after a conflict (deadlock, serialization failure, lock timeout).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import cache
from queue import Empty
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from ferroscope.contracts.store import (
    NO_CALL,
    CallContext,
    Clock,
    Publisher,
    Receipt,
    RepeatedCallError,
    StopFlag,
    StoredReceipt,
)
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.notification import Subscription
from ferroscope.db import executor, sqlite
from ferroscope.db.connections import FOLLOWS, GALERA, POSITION, ConnectionPool, Memory
from ferroscope.db.errors import classify, is_elsewhere, leaves_open, to_unavailable_error
from ferroscope.db.executor import database_of
from ferroscope.db.session import CompiledStatements, Shared
from ferroscope.db.sqlite_writers import SqliteWriters
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.keys import KeyRing

T = TypeVar("T")

# A pooled connection's time of last use, by the monotonic clock.
_USED_AT: Final = "used at"
# Seconds after which an idle connection may have broken unnoticed, before a transaction or within one. Something is
# sent separately then: if the first exchange on a broken connection contained COMMIT, it would be unknown whether the
# server received it, and the work could not be retried.
_IDLE_SECONDS: Final = 0.5
_NO_KEYS: Final = KeyRing()
_COMMIT: Final = (executor.COMMIT,)


class Work(msgspec.Struct, frozen=True):
    """A function to run in a transaction. ``again``: it may be run again if the pooled connection was broken."""

    run: Callable[[Transaction], Any]
    write: bool
    durable: bool
    snapshot: bool = True
    again: bool = True
    call: CallContext = NO_CALL


class WriteResult(msgspec.Struct, frozen=True):
    """The result of a transaction that is about to be committed, or has been; ``ident``: its receipt's ID, or ""."""

    result: Any
    transaction: Transaction
    is_used: bool
    ident: str = ""


class UnansweredError(Exception):
    """COMMIT was sent, and not answered."""

    def __init__(self, error: DBAPIError, done: WriteResult) -> None:
        super().__init__(str(error))
        self.error = error
        self.done = done


class Store:
    """Runs units of work. Both calls raise ``StoreUnavailableError`` if the store is unavailable.

    Related changes are written by one ``write``, which is atomic. After it has returned, they are durable, unless it
    was told otherwise: they survive the crash of any process and, depending on the database's configuration, of its
    host.

    ``write`` raises ``OutcomeUnknownError`` if the answer to COMMIT was lost. On behalf of a call with a receipt it
    does so only if it could not find out what became of the change.

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
        keys: KeyRing = _NO_KEYS,
        subscriptions: Sequence[Subscription] = (),
        memory: Memory | None = None,
    ) -> None:
        self._database = database_of(engine.dialect.name)
        is_sqlite = engine.dialect.name == "sqlite"
        self.engine = engine
        self.memory = memory or Memory(clock)
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._meter = meter
        self._call = NO_CALL
        self._opening = cache(self._database.opening)
        self._connections = ConnectionPool(engine, size=settings.pool_size, timeout=settings.busy_timeout, clock=clock)
        self._shared = Shared(
            dialect=engine.dialect,
            send=self._database.send,
            statements=CompiledStatements(engine),
            clock=clock.time if is_sqlite else None,
            monotonic=clock.monotonic,
            memory=self.memory,
            keys=keys,
            subscriptions=subscriptions,
        )
        self.claims = self._shared.claims
        self._writers: SqliteWriters[Work, WriteResult] | None = None
        self._run_write = self._run
        if is_sqlite:  # which allows one writer
            self._writers = SqliteWriters(
                engine,
                self._connections,
                run=self._run,
                run_part=self._run_part,
                commit=self._commit_parts,
                timeout=settings.busy_timeout,
            )
            self._run_write = self._writers.turns.write

    def on_behalf_of(self, call: CallContext) -> Store:
        """Return a view of this store whose writes meet what the call demands.

        They raise ``StaleLeaseError`` if the call has lost its lease, and ``RepeatedCallError`` if its receipt exists.
        """
        store = object.__new__(Store)
        store.__dict__ |= self.__dict__
        store._call = call
        return store

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls it back.

        ``work`` may be retried from its start (deadlock, serialization failure, lock timeout), so it must not have side
        effects outside the transaction. With ``durable=False`` the commit may be lost if the database crashes (its host
        loses power, or on PostgreSQL its server is killed), but never if a process of ours dies: for claims, heartbeats
        and steps whose loss only repeats work. What others act on as soon as they see it is durable.
        """
        job = Work(work, write=True, durable=durable, call=self._call)
        deadline, tries, done = self._clock.monotonic() + self._settings.busy_timeout, 0, None
        while done is None:
            try:
                done = self._run_write(job) or self._run_write(msgspec.structs.replace(job, again=False))
            except UnansweredError as exc:
                self._find_out(exc, job.call.receipt)
                done = exc.done
            except (Empty, DBAPIError) as exc:
                self._wait_or_raise(exc, deadline, tries)
                tries += 1
        self._note_commit(done, job.call)
        try:
            if durable and done.is_used and self._writers is not None:
                self._make_durable(self._writers)
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
        job = Work(work, write=False, durable=False, snapshot=snapshot)
        deadline, tries, done = self._clock.monotonic() + self._settings.busy_timeout, 0, None
        while done is None:
            try:
                done = self._run(job) or self._run(msgspec.structs.replace(job, again=False))
            except (Empty, DBAPIError) as exc:
                self._wait_or_raise(exc, deadline, tries)
                tries += 1
        result: T = done.result
        return result

    def _wait_or_raise(self, exc: Empty | DBAPIError, deadline: float, tries: int) -> None:
        """Wait before the next try, longer each time; ``StoreUnavailableError`` if another try would not help."""
        if isinstance(exc, Empty):
            self._meter.record_database_error("unavailable")
            raise StoreUnavailableError("all database connections are in use") from exc
        kind = classify(exc)
        if kind == "other":
            raise exc
        self._meter.record_database_error(kind)
        if kind == "unavailable" or self._clock.monotonic() > deadline:
            raise to_unavailable_error(self.engine.url, exc) from exc
        delay = self._settings.retry_interval / 64 * 2 ** min(tries, 6)
        pause = delay * random.uniform(0.5, 1.5)  # noqa: S311  # jitter, no secret
        if self._stop.wait(pause):  # a stopping process still retries its last writes, without a busy loop
            time.sleep(pause)

    def _run(self, work: Work) -> WriteResult | None:
        """Run ``work`` in its own transaction; None if the connection was broken and ``work`` may be run again."""
        connection = self._connections.borrow()
        opening = self._opening(work.write, work.durable, work.snapshot)
        transaction = Transaction(self._shared, connection, opening, work.call)
        can_break = work.write and self._shared.clock is None
        began = self._clock.monotonic()
        done: WriteResult | None = None
        try:
            if can_break and began - connection.info.get(_USED_AT, float("-inf")) > _IDLE_SECONDS:
                transaction.flush()
            if work.call.lease is not None:
                transaction.require(work.call.lease)
            done = _complete(work, transaction, work.run(transaction))
            if can_break and done.is_used and self._clock.monotonic() - began > _IDLE_SECONDS:
                transaction.probe()
            if work.write or work.snapshot:
                self._commit(connection, transaction, durable=work.durable)
            if not connection.invalidated:
                connection.info[_USED_AT] = self._clock.monotonic()
        except DBAPIError as exc:
            self._recover(exc, connection, transaction, work, done)
            return None
        except BaseException:
            if transaction.is_open:
                executor.rollback(connection)
            raise
        finally:
            transaction.close()
            self._connections.give_back(connection)
        return done

    def _recover(
        self, exc: DBAPIError, connection: Connection, transaction: Transaction, work: Work, done: WriteResult | None
    ) -> None:
        """Clean up after the error; raise it, or return if the work may be run again on another connection."""
        if exc.connection_invalidated:
            self._connections.note_loss(exc, transaction.sent_at)
        if done is not None and work.write and transaction.committing and leaves_open(exc):
            connection.invalidate()
            self._connections.suspect_all()
            raise UnansweredError(exc, done) from exc
        # SQLite answers what a connection that cannot write reads; what was answered before the refusal counts for
        # nothing, as it does where a server refuses.
        elsewhere = is_elsewhere(exc)
        if classify(exc) != "unavailable" or not (elsewhere or (transaction.unanswered and work.again)):
            executor.rollback(connection)
            raise exc
        if elsewhere:
            executor.rollback(connection)  # a closed connection of SQLite keeps its lock until its cursors are gone
        connection.invalidate()
        self._connections.suspect_all()
        if not work.again:
            raise exc

    def _commit(self, connection: Connection, transaction: Transaction, *, durable: bool) -> None:
        # Before COMMIT: as soon as it takes effect, the queue would release a claim that is not among ``claims``.
        self.claims.update(transaction.begun)
        try:
            timeline = connection.info.get(FOLLOWS, 0) if durable else 0
            position = transaction.end(
                self._database.closing(transaction.woken) if transaction.woken else _COMMIT,
                POSITION if timeline else "",
            )
        except BaseException:
            self.claims.difference_update(transaction.begun)
            raise
        if position is not None:
            self.memory.committed(timeline, position)
        if transaction.epochs:
            self.memory.keep(transaction.epochs)

    def _run_part(self, connection: Connection, work: Work) -> WriteResult:
        """Run ``work`` as a part of the transaction of SQLite that is open; undo it alone if it fails."""
        transaction = Transaction(self._shared, connection, sqlite.SAVEPOINT, work.call)
        try:
            if work.call.lease is not None:
                transaction.require(work.call.lease)
            done = _complete(work, transaction, work.run(transaction))
            transaction.end(sqlite.RELEASE)
        except BaseException:
            if transaction.is_open:
                sqlite.undo(connection)
            raise
        finally:
            transaction.close()
        return done

    def _commit_parts(self, connection: Connection, parts: Sequence[WriteResult]) -> None:
        """Commit the transaction of SQLite that is open."""
        begun = {token for part in parts for token in part.transaction.begun}
        self.claims.update(begun)
        try:
            executor.execute(connection, executor.COMMIT.text)
        except BaseException:
            self.claims.difference_update(begun)
            raise
        for part in parts:
            self.memory.keep(part.transaction.epochs)

    def _note_commit(self, done: WriteResult, call: CallContext) -> None:
        """Let others in this process know what was committed."""
        transaction = done.transaction
        if call.audited is not None:
            call.audited.recorded = True
        if call.receipt is not None and done.ident:
            call.receipt.written = True
        for moved in transaction.transitions:
            self._meter.record_transition(moved)
        if transaction.hardware_changes:
            self._meter.record_hardware_changes(transaction.hardware_changes)
        self.claims.difference_update(transaction.ended)

    def _make_durable(self, writers: SqliteWriters[Work, WriteResult]) -> None:
        """Sync what was committed to SQLite; ``OutcomeUnknownError``."""
        try:
            writers.sync()
        except (OSError, DBAPIError, Empty) as exc:
            self._meter.record_database_error("unavailable")
            why = getattr(exc, "strerror", None) or exc
            reason = f"the database cannot be synced to the disk: {why}"
            raise OutcomeUnknownError(f"{reason}; the change may have been stored") from exc

    def _find_out(self, lost: UnansweredError, receipt: Receipt | None) -> None:
        """Find out what became of a transaction whose COMMIT was not answered; return if it is committed.

        A void receipt with its ID is written over a new connection. It waits for the transaction if that is still under
        way, it conflicts with its receipt if it was committed, and keeps it from being committed later otherwise.
        """
        self._meter.record_database_error("unavailable")
        reason = to_unavailable_error(self.engine.url, lost.error)
        unknown = OutcomeUnknownError(f"{reason}; the change may have been stored", reason.failure.fault)
        deadline = self._clock.monotonic() + self._settings.busy_timeout
        if not lost.done.ident or receipt is None or getattr(lost.error.orig, "unreplicated", False):
            raise unknown from lost.error
        while (committed := self._is_committed(lost.done.ident, receipt)) is None:
            if self._clock.monotonic() > deadline or self._stop.wait(self._settings.retry_interval):
                raise unknown from lost.error
        if not committed:
            raise reason from lost.error
        self.memory.keep(lost.done.transaction.epochs)

    def _is_committed(self, ident: str, receipt: Receipt) -> bool | None:
        """Return whether the transaction with this receipt was committed; None if that cannot be said now."""
        void = Work(lambda tx: tx.receipts.void(ident, receipt), write=True, durable=True)
        look = Work(lambda tx: tx.receipts.get(ident), write=False, durable=False)
        try:
            try:
                done = self._run_write(void) or self._run_write(msgspec.structs.replace(void, again=False))
            except RepeatedCallError:
                done = self._run(look) or self._run(msgspec.structs.replace(look, again=False))
        except (DBAPIError, Empty, StoreError, UnansweredError):
            return None
        stored: StoredReceipt | None = None if done is None else done.result
        return stored is not None and not stored.void


def _complete(work: Work, transaction: Transaction, result: object) -> WriteResult:
    """Buffer what else the transaction has to write."""
    if not work.write:
        return WriteResult(result, transaction, transaction.is_used)
    if "journal" in transaction.__dict__:
        transaction.journal.write_rest()
    if GALERA in transaction.info and "nodes" in transaction.__dict__:
        transaction.nodes.write_locked()
    audited, receipt = work.call.audited, work.call.receipt
    if audited is not None and not audited.recorded:
        transaction.audit.record(audited)
    is_used = transaction.is_used
    ident = transaction.receipts.add(receipt) if receipt is not None and is_used else ""
    return WriteResult(result, transaction, is_used, ident)
