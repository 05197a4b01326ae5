"""The open connections of a store, most recently used first, and how it tries to reach a server that is silent."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from queue import Empty
from typing import Final

from sqlalchemy import Connection, Dialect, Engine, event
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.store import Clock

# A connection's, to SQLite: the path of its write-ahead log; "" if it has none, as not every file system can.
WAL: Final = "write-ahead log"
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
