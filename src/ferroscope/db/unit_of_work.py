"""One unit of work, run once on one open connection: its transaction, with what else that has to write.

``store`` decides what becomes of errors, and when it is run again. ``sqlite_writers`` runs those of several threads in
one transaction.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from queue import Empty
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.exc import DBAPIError

from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.calls import PENDING, RECEIPT, Receipt
from ferroscope.contracts.coordination import PRECONDITION
from ferroscope.contracts.queue import Clock
from ferroscope.core.notification import Subscription
from ferroscope.db import executor, sqlite
from ferroscope.db.engine import NOTIFY_CHANNEL
from ferroscope.db.errors import classify, is_elsewhere, leaves_open
from ferroscope.db.executor import Command, Send, Statements
from ferroscope.db.replication import FOLLOWS, POSITION, Memory
from ferroscope.db.session import Batch
from ferroscope.db.transaction import Transaction
from ferroscope.secrets.keys import KeyRing

# A pooled connection's time of last use, by the monotonic clock.
_USED_AT: Final = "used at"
# Seconds after which an idle connection may have broken unnoticed, before a transaction or within one. Something is
# sent separately then: if the first exchange on a broken connection contained COMMIT, it would be unknown whether the
# server received it, and the work could not be retried.
_IDLE_SECONDS: Final = 0.5


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


_GENERATION: Final = "generation"
# An exchange that fails after so long was not answered. One that is refused delays nobody, and after a fail-over of the
# database the next attempt may succeed.
_SILENT_SECONDS: Final = 1.0
# Between two attempts to reach a server that does not answer.
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
        """Connect within this; ``DBAPIError`` if it is not this caller's turn."""
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
        """Note that the server has answered what ``began`` then, or that this failed with the connection."""
        now = self._clock.monotonic()
        with self._lock:
            self._silence = failure.orig if failure and now - began >= _SILENT_SECONDS else None
            self._retry_at = now + _RETRY_SECONDS


class Connections:
    """The open connections of one engine: at most ``size``, most recently used first.

    SQLAlchemy's pool, with a new ``Connection`` for each checkout, costs as much CPU time as a short transaction.

    When a server fails, all idle connections break. The first one found broken makes all older ones stale: each is
    reopened before its next use, instead of failing or timing out one by one. Connections that are lent are not
    affected.
    """

    def __init__(self, engine: Engine, *, size: int, timeout: float, clock: Clock) -> None:
        self._engine = engine
        self._timeout = timeout
        # A file always answers; who waits for its lock need not keep others from trying.
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
            self._put(connection)
            raise
        return connection

    def _open(self) -> Connection:
        with nullcontext() if self._breaker is None else self._breaker.attempt():
            connection = self._engine.connect()
        connection.info[_GENERATION] = self._generation
        if connection.info.get(sqlite.WAL):
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
            self._put(kept)

    def _put(self, connection: Connection | None) -> None:
        self._free.append(connection)
        # Who starts to wait after this has seen the connection: it looks again once it is counted.
        if self._waiting:
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
        """Note that a connection has ended with ``failure``, during what ``began`` then."""
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
        self.connections = Connections(engine, size=settings.pool_size, timeout=settings.busy_timeout, clock=clock)
        self.claims: set[str] = set()
        self.memory = memory
        self.send: Send = sender_for(engine.dialect.driver)
        self._opening = cache(partial(executor.opening, engine.dialect.name))
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
        opening = self._opening(write=work.write, durable=work.durable, snapshot=work.snapshot)
        batch = Batch(connection, self._statements, self.send, opening, self._own_clock, self._clock.monotonic)
        transaction = self._transaction(connection, batch)
        can_break = work.write and self._own_clock is None
        began = self._clock.monotonic()
        try:
            if can_break and began - connection.info.get(_USED_AT, float("-inf")) > _IDLE_SECONDS:
                batch.flush()
            done = self._do(transaction, batch, work)
            if can_break and batch.is_used and self._clock.monotonic() - began > _IDLE_SECONDS:
                batch.probe()
            if work.write or work.snapshot:
                self._commit(batch, connection, transaction, durable=work.durable)
        except DBAPIError as exc:
            if exc.connection_invalidated:
                self.connections.note_loss(exc, batch.sent_at)
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
            position = batch.end(closing(connection, transaction.woken), POSITION if timeline else "")
        except BaseException:
            self.claims.difference_update(transaction.begun)
            raise
        if position is not None:
            self.memory.committed(timeline, position)
        if transaction.epochs:
            self.memory.keep(transaction.epochs)


def closing(connection: Connection, woken: Collection[str]) -> Sequence[Command]:
    """Return COMMIT, and what is sent after it: on PostgreSQL, a NOTIFY for each message in ``woken``.

    A transaction that has notified holds a lock of the whole server until its commit is on the disk, so such commits
    would wait for each other. After COMMIT it holds that lock for a moment. If a message is lost, polls find the news.
    """
    if not woken or connection.dialect.name != "postgresql":
        return (executor.COMMIT,)
    # The text of a NOTIFY contains its message, so it differs each time and is not worth preparing.
    notes = [Command(f"NOTIFY {NOTIFY_CHANNEL}, '{_quote(text)}'", None, answers=False) for text in sorted(woken)]
    return (executor.COMMIT, *notes)


def _quote(text: str) -> str:
    return text.replace("'", "''")


def sender_for(driver: str) -> Send:
    """Return the sender for a driver, by its name in SQLAlchemy."""
    if driver == "psycopg":
        from ferroscope.db.postgresql import pipelined

        return pipelined
    if driver == "pymysql":
        from ferroscope.db.mariadb import joined

        return joined
    return sqlite.send
