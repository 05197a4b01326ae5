"""The store: it runs units of work, each in a transaction (see ``unit_of_work``), and classifies errors.

A unit of work is retried after a conflict (deadlock, serialization failure, lock timeout); if the database is
unreachable, full or read-only, ``StoreUnavailableError`` is raised.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextvars import copy_context
from queue import Empty
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.calls import PENDING, RECEIPT, Receipt, RepeatedCallError
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.errors import OutcomeUnknownError, StoreError, StoreUnavailableError
from ferroscope.contracts.queue import Clock, Publisher, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.notification import Subscription
from ferroscope.db.errors import classify, to_unavailable_error
from ferroscope.db.replication import Memory
from ferroscope.db.session import NO_KEYS
from ferroscope.db.sqlite_writers import SqliteWriters
from ferroscope.db.transaction import Transaction
from ferroscope.db.unit_of_work import Done, Runner, UnansweredError, Work
from ferroscope.secrets.keys import KeyRing

T = TypeVar("T")


class Store:
    """Runs units of work. Both calls raise ``StoreUnavailableError`` if the store is unavailable.

    Related changes are written by one ``write``, which is atomic. After it has returned, they are durable, unless it
    was told otherwise: they survive the crash of any process and, depending on the database's configuration, of its
    host.

    ``write`` raises ``OutcomeUnknownError`` if the answer to COMMIT was lost; under a ``calls.RECEIPT`` only if it
    could not be found out what became of it.

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
        self._settings = settings
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._meter = meter
        self._runner = Runner(
            engine, settings=settings, clock=clock, keys=keys, subscriptions=subscriptions, memory=self.memory
        )
        self.claims = self._runner.claims
        # SQLite allows one writer.
        is_sqlite = engine.dialect.name == "sqlite"
        self._writers = SqliteWriters(engine, self._runner, settings.busy_timeout) if is_sqlite else None

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        """Run ``work`` in one transaction and commit it; any exception rolls it back.

        ``work`` may be retried from its start (deadlock, serialization failure, lock timeout), so it must not have side
        effects outside the transaction. With ``durable=False`` the commit may be lost if the database crashes (its host
        loses power, or on PostgreSQL its server is killed), but never if a process of ours dies: for claims, heartbeats
        and steps whose loss only repeats work. What others act on as soon as they see it is durable.
        """
        job = Work(work, write=True, durable=durable)
        try:
            done = self._until_done(job)
        except UnansweredError as exc:
            self._find_out(exc)
            done = exc.done
        self.claims.difference_update(done.transaction.ended)
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
        result: T = self._until_done(job).result
        return result

    def _attempt(self, work: Work) -> Done:
        """Run ``work`` once; again if the pooled connection was broken and nothing can have been committed."""
        together = self._writers if work.write else None
        done = self._runner.run_alone(work) if together is None else together.write(work)
        if done is None:
            return self._attempt(msgspec.structs.replace(work, again=False))
        if work.write:
            self._publish(done.transaction)
        return done

    def _make_durable(self, writers: SqliteWriters) -> None:
        """Sync what was committed to SQLite; ``OutcomeUnknownError``."""
        try:
            writers.sync()
        except (OSError, DBAPIError, Empty) as exc:
            self._meter.record_database_error("unavailable")
            why = getattr(exc, "strerror", None) or exc
            reason = f"the database cannot be synced to the disk: {why}"
            raise OutcomeUnknownError(f"{reason}; the change may have been stored") from exc

    def _publish(self, transaction: Transaction) -> None:
        """Let others know what was committed."""
        if (audited := PENDING.get()) is not None:
            audited.recorded = True
        if (receipt := RECEIPT.get()) is not None and "receipts" in transaction.used:
            receipt.written = True
        for moved in transaction.transitions:
            self._meter.record_transition(moved)
        if transaction.hardware_changes:
            self._meter.record_hardware_changes(transaction.hardware_changes)

    def _find_out(self, lost: UnansweredError) -> None:
        """Find out what became of a transaction whose COMMIT was not answered; return if it is committed.

        A void receipt with its ID is written over a new connection. It waits for the transaction if that is still under
        way, it conflicts with its receipt if it was committed, and keeps it from being committed later otherwise.
        """
        self._meter.record_database_error("unavailable")
        reason = to_unavailable_error(self.engine.url, lost.error)
        unknown = OutcomeUnknownError(f"{reason}; the change may have been stored", reason.failure.fault)
        deadline = self._clock.monotonic() + self._settings.busy_timeout
        ident, receipt, transaction = lost.done.ident, lost.done.receipt, lost.done.transaction
        if not ident or receipt is None or getattr(lost.error.orig, "unreplicated", False):
            raise unknown from lost.error
        while True:
            committed = self._is_committed(ident, receipt)
            if committed is False:
                raise reason from lost.error
            if committed:
                self.memory.keep(transaction.epochs)
                self._publish(transaction)
                return
            if self._clock.monotonic() > deadline or self._stop.wait(self._settings.retry_interval):
                raise unknown from lost.error

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
                copy_context().run(alone, lambda: self._attempt(Work(void, write=True, durable=True)))
            except RepeatedCallError:
                look = Work(lambda tx: tx.receipts.get(ident), write=False, durable=False)
                stored_receipt: Any = self._attempt(look).result
                return stored_receipt is not None and not stored_receipt.void
        except (DBAPIError, Empty, StoreError, UnansweredError):
            return None
        return False

    def _until_done(self, work: Work) -> Done:
        """Run ``work``, again while others are in its way; ``StoreUnavailableError``."""
        deadline = self._clock.monotonic() + self._settings.busy_timeout
        delay = self._settings.retry_interval / 64
        while True:
            try:
                return self._attempt(work)
            except Empty as exc:
                self._meter.record_database_error("unavailable")
                raise StoreUnavailableError("all database connections are in use") from exc
            except DBAPIError as exc:
                kind = classify(exc)
                if kind == "other":
                    raise
                self._meter.record_database_error(kind)
                if kind == "unavailable" or self._clock.monotonic() > deadline:
                    raise to_unavailable_error(self.engine.url, exc) from exc
            pause = delay * random.uniform(0.5, 1.5)  # noqa: S311  # jitter, no secret
            if self._stop.wait(pause):  # a stopping process still retries its last writes, without a busy loop
                time.sleep(pause)
            delay = min(delay * 2, self._settings.retry_interval)
