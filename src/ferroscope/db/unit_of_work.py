"""One unit of work, run once on one connection: its transaction, with what else that has to write.

``store`` decides what becomes of errors, and when it is run again. ``sqlite_writers`` runs those of several threads in
one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.calls import PENDING, RECEIPT, Receipt
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.queue import Clock
from ferroscope.core.notification import Subscription
from ferroscope.db import executor
from ferroscope.db.batch import Batch
from ferroscope.db.engine import Connections
from ferroscope.db.errors import classify, is_elsewhere, leaves_open
from ferroscope.db.executor import Send, Statements, joined, one_by_one
from ferroscope.db.replication import FOLLOWS, POSITION, Memory
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.keys import KeyRing

# A pooled connection's time of last use, by the monotonic clock.
_USED_AT: Final = "used at"
# Seconds after which an idle connection may have broken unnoticed, before a transaction or within one. Something is
# sent separately then: if the first exchange on a broken connection contained COMMIT, it would be unknown whether the
# server received it, and the work could not be retried.
_IDLE: Final = 0.5


class Work(msgspec.Struct, frozen=True):
    """What to run in a transaction, and what that is for; ``again``: also if the pooled connection was broken."""

    run: Callable[[Transaction], Any]
    write: bool
    durable: bool
    snapshot: bool = True
    again: bool = True


class Done(msgspec.Struct, frozen=True):
    """What a transaction would return, or has returned; ``ident``: the ID of its receipt, or ""."""

    result: Any
    transaction: Transaction
    ident: str
    receipt: Receipt | None
    is_used: bool


class UnansweredError(Exception):
    """COMMIT was sent, and not answered."""

    def __init__(self, error: DBAPIError, done: Done) -> None:
        super().__init__(str(error))
        self.error = error
        self.done = done


class Runner:
    """Runs units of work of one store, each once, on its ``connections``; for the rest see ``Store``."""

    def __init__(
        self,
        engine: Engine,
        *,
        settings: DatabaseSettings,
        clock: Clock,
        keys: KeyRing,
        subscriptions: Sequence[Subscription],
        memory: Memory,
    ) -> None:
        self.connections = Connections(engine, size=settings.pool_size, timeout=settings.busy_timeout)
        self.claims: set[str] = set()
        self.memory = memory
        self.send: Send = sender_for(engine.dialect.driver)
        self._keys = keys
        self._subscriptions = subscriptions
        self._statements = Statements(engine)
        # SQLite's clock is this host's; servers return theirs with BEGIN.
        self._own_clock = clock.time if engine.dialect.name == "sqlite" else None
        self._clock = clock

    def run_alone(self, work: Work) -> Done | None:
        """Run ``work`` in a transaction of its own; see ``run``."""
        connection = self.connections.borrow()
        try:
            return self.run(connection, work)
        finally:
            self.connections.give_back(connection)

    def run_under_savepoint(self, connection: Connection, work: Work) -> Done:
        """Run ``work`` as a part of the transaction of SQLite that is open; undo it alone if it fails."""
        batch = Batch(connection, self._statements, self.send, executor.SAVEPOINT, self._own_clock)
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

    def run(self, connection: Connection, work: Work) -> Done | None:
        """Run ``work`` on this connection; None if that was broken, and the work may be run ``again`` on another."""
        opening = executor.opening(connection, write=work.write, durable=work.durable, snapshot=work.snapshot)
        batch = Batch(connection, self._statements, self.send, opening, self._own_clock)
        transaction = self._transaction(connection, batch)
        can_break = work.write and self._own_clock is None
        began = self._clock.monotonic()
        try:
            if can_break and began - connection.info.get(_USED_AT, float("-inf")) > _IDLE:
                batch.flush()
            done = self._do(transaction, batch, work)
            if can_break and batch.is_used and self._clock.monotonic() - began > _IDLE:
                batch.probe()
            if work.write or work.snapshot:
                self._commit(batch, connection, transaction, durable=work.durable)
        except DBAPIError as exc:
            if work.write and batch.committing and leaves_open(exc):
                connection.invalidate()
                self.connections.suspect_all()
                raise UnansweredError(exc, done) from exc
            # SQLite answers what a connection that cannot write reads; what was answered before the refusal counts for
            # nothing, as it does where a server refuses.
            elsewhere = is_elsewhere(exc)
            if classify(exc) != "unavailable" or not (elsewhere or (batch.unanswered and work.again)):
                executor.rollback(connection)
                raise
            if elsewhere:
                executor.rollback(connection)  # a closed connection of SQLite keeps its lock until its cursors are gone
            connection.invalidate()
            self.connections.suspect_all()
            if not work.again:
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

    def _do(self, transaction: Transaction, batch: Batch, work: Work) -> Done:
        """Run ``work``, and buffer what else its transaction has to write."""
        if not work.write:
            return Done(work.run(transaction), transaction, "", None, batch.is_used)
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
        return Done(result, transaction, ident, receipt, batch.is_used)

    def _commit(self, batch: Batch, connection: Connection, transaction: Transaction, *, durable: bool) -> None:
        # Before COMMIT: as soon as it takes effect, the queue would release a claim that is not among ``claims``.
        self.claims.update(transaction.begun)
        try:
            timeline = connection.info.get(FOLLOWS, 0) if durable else 0
            position = batch.end(executor.closing(connection, transaction.woken), POSITION if timeline else "")
        except BaseException:
            self.claims.difference_update(transaction.begun)
            raise
        if position is not None:
            self.memory.committed(timeline, position)
        if transaction.epochs:
            self.memory.keep(transaction.epochs)


def sender_for(driver: str) -> Send:
    """Return the sender for a driver, by its name in SQLAlchemy."""
    if driver == "psycopg":
        from ferroscope.db.pipeline import pipelined

        return pipelined
    return joined if driver == "pymysql" else one_by_one
