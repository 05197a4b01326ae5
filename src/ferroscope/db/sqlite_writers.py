"""The writers of a process to SQLite, which has one: whose turn it is, among its threads and among processes.

One thread writes for all. What waits in its queue shares a transaction and a sync.

SQLite itself polls for its write lock with increasing pauses, which leaves a fifth of the machine idle with two busy
processes. Here they first acquire a lock on a file beside the database, which the kernel releases when a process dies.
It only improves throughput: safety depends on SQLite's own lock alone. So a process that cannot use the file
(read-only, missing) writes without it, and so does one whose wait timed out: the holder may never write. The wait
ignores the stop flag, since a process that stops must still write (release its claims, leave the members), and it is
limited anyway.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.db import executor
from ferroscope.db.errors import classify, is_elsewhere
from ferroscope.db.sqlite import WAL, WalSync, waiting
from ferroscope.db.unit_of_work import Done, Runner, Work

T = TypeVar("T")
D = TypeVar("D")

# The thread that waits for the first unit waits for the last one, too.
MAX_UNITS_IN_A_GROUP: Final = 16
# After so long without work the thread ends, so that a store needs no end of its own.
_IDLE_SECONDS: Final = 60.0


class Unit(Generic[T, D]):
    """Something to carry out, and its outcome. It sees the context variables of the thread that asked for it."""

    __slots__ = ("_begun", "_context", "_ended", "error", "result", "what")

    def __init__(self, what: T) -> None:
        self.what = what
        self.result: D = None  # type: ignore[assignment]  # until it has ended
        self.error: BaseException | None = None
        self._context = copy_context()
        self._begun, self._ended = threading.Lock(), threading.Lock()
        self._ended.acquire()

    def begin(self) -> bool:
        """Return whether the unit is the caller's: to carry out, or to withdraw. Only the first caller gets it."""
        return self._begun.acquire(blocking=False)

    def run(self, call: Callable[[T], D]) -> None:
        """Keep what ``call`` returns or raises."""
        self.error = None
        try:
            self.result = self._context.run(call, self.what)
        except BaseException as exc:  # noqa: BLE001  # raised again in the thread that asked for it
            self.error = exc

    def end(self) -> None:
        """Let the thread that asked for it go on."""
        self._ended.release()

    def wait(self, timeout: float) -> D:
        """Return its result, or raise its error; ``TimeoutError`` if it has not begun within ``timeout`` seconds."""
        if not self._ended.acquire(timeout=timeout):
            if self.begin():
                raise TimeoutError
            self._ended.acquire()
        if self.error is not None:
            raise self.error
        return self.result


class Writer(Generic[T, D]):
    """A thread that carries out units. It is started for the first unit, and ends when there is none for a while.

    ``carry_out`` gives each unit a result or an error; what it raises is the error of all of them. ``turn`` is entered
    before a group is formed: what comes while it waits is part of the group.
    """

    def __init__(
        self, carry_out: Callable[[Sequence[Unit[T, D]]], None], turn: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._carry_out = carry_out
        self._turn = turn
        self._lock = threading.Lock()
        self._units: SimpleQueue[Unit[T, D]] = SimpleQueue()
        self._runs = False

    def run(self, what: T, timeout: float) -> D:
        """See ``Unit.wait``."""
        unit: Unit[T, D] = Unit(what)
        with self._lock:
            if not self._runs:
                threading.Thread(target=self._work, name="sqlite-writer", daemon=True).start()
                self._runs = True
            self._units.put(unit)
        return unit.wait(timeout)

    def _work(self) -> None:
        while True:
            try:
                first = self._units.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._units.empty():
                        self._runs = False
                        return
            else:
                self._write(first)

    def _write(self, first: Unit[T, D]) -> None:
        group = [first]
        try:
            with self._turn():
                group = [unit for unit in self._waiting(first) if unit.begin()]
                self._carry_out(group)
        except BaseException as exc:  # noqa: BLE001  # raised in the threads that wait
            for unit in group:
                unit.error = exc
        for unit in group:
            unit.end()

    def _waiting(self, first: Unit[T, D]) -> Iterator[Unit[T, D]]:
        yield first
        with contextlib.suppress(Empty):
            for _ in range(MAX_UNITS_IN_A_GROUP - 1):
                yield self._units.get_nowait()


# Seconds between attempts, about one transaction. A blocking flock could not time out.
_POLL_INTERVAL: Final = 0.0003
# After a timeout, seconds for which the lock is only tried without waiting.
_BYPASS: Final = 30.0
# Only users who can write the database may lock the file.
_MODE: Final = 0o600

_log = structlog.get_logger(__name__)


def write_lock(engine: Engine, timeout: float) -> Callable[[], AbstractContextManager[None]]:
    """Return what to enter before writing to the engine's file; the writer may have to do without the lock."""
    file = engine.url.database
    if not file or file == ":memory:":
        return contextlib.nullcontext
    lock = SqliteWriteLock(f"{file}-writelock", timeout)
    return lambda: lock


class SqliteWriteLock:
    """``path`` is the lock file; ``timeout`` the seconds to wait for it. For one thread at a time, which enters it."""

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._file: int | None = None
        self._is_held = False
        self._bypassed_until = float("-inf")

    def __enter__(self) -> None:
        self._is_held = self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_held:
            with contextlib.suppress(OSError):  # what was written is committed
                self.release()

    def acquire(self) -> bool:
        """Acquire the lock; return False if that took too long, and the caller has to do without it."""
        file = self._opened()
        return file is not None and self._acquire(file)

    def release(self) -> None:
        """Release the lock, which was acquired."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _opened(self) -> int | None:
        if self._file is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, _MODE)
            except OSError:
                return None
            weakref.finalize(self, os.close, self._file)
            with contextlib.suppress(OSError):  # an earlier release may have created it with wider permissions
                os.fchmod(self._file, _MODE)
        return self._file

    def _acquire(self, file: int) -> bool:
        """Acquire the lock; return False after a timeout, and then try without waiting for a while."""
        now = time.monotonic()
        deadline = now if now < self._bypassed_until else now + self._timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    self._give_up(now)
                    return False
                time.sleep(_POLL_INTERVAL)
            except OSError:  # a file system without locks
                return False
            else:
                self._bypassed_until = float("-inf")
                return True

    def _give_up(self, now: float) -> None:
        if now >= self._bypassed_until:
            self._bypassed_until = time.monotonic() + _BYPASS
            _log.warning(
                "timed out waiting for the database's write lock file; continuing without it",
                file=self._path,
                waited=round(time.monotonic() - now, 3),
                advice="find the process that holds the file: fuser -v FILE",
            )


class SqliteWriters:
    """``timeout``: seconds to wait for one's turn, most of them for SQLite's own lock."""

    def __init__(self, engine: Engine, runner: Runner, timeout: float) -> None:
        self._runner = runner
        self._timeout = timeout
        # A thread that waits for the file lock blocks the others, so most of the time is for SQLite's own.
        self._writer: Writer[Work, Done | None] = Writer(self._write_all, write_lock(engine, min(1.0, timeout / 4)))
        self._sync = WalSync()

    def write(self, work: Work) -> Done | None:
        """Run ``work``, together with what other threads want to write; see ``Runner.run``."""
        try:
            return self._writer.run(work, self._timeout)
        except TimeoutError:
            raise StoreUnavailableError("another thread has held the database's write lock for too long") from None

    def sync(self) -> None:
        """Return when all that was committed before is durable; ``OSError``, ``DBAPIError``, ``queue.Empty``."""
        if self._sync.has_failed:
            self._copy_log()
        try:
            self._sync()
        except FileNotFoundError:  # it was deleted, but SQLite still has it open
            self._copy_log()

    def _write_all(self, units: Sequence[Unit[Work, Done | None]]) -> None:
        """Run all of them in one transaction of SQLite, each under a savepoint; a single one as on any database."""
        if len(units) > 1:
            connection = self._runner.connections.borrow()
            try:
                if self._run_together(connection, units):
                    return
            finally:
                self._runner.connections.give_back(connection)
        for unit in units:
            unit.run(self._write_alone)  # each on a connection that it borrows: the one before may have broken its own

    def _run_together(self, connection: Connection, units: Sequence[Unit[Work, Done | None]]) -> bool:
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
                unit.run(partial(self._runner.run_under_savepoint, connection))
                failed = unit.error
                if not executor.is_open(connection) or (isinstance(failed, DBAPIError) and is_elsewhere(failed)):
                    executor.rollback(connection)
                    return False
            for unit in units:
                if unit.error is None and unit.result is not None:
                    begun |= unit.result.transaction.begun
            self._runner.claims.update(begun)
            executor.commit(connection)
        except BaseException:
            self._runner.claims.difference_update(begun)
            executor.rollback(connection)
            raise
        for unit in units:
            if unit.error is None and unit.result is not None:
                self._runner.memory.keep(unit.result.transaction.epochs)
        return True

    def _write_alone(self, work: Work) -> Done | None:
        connection = self._runner.connections.borrow()
        self._sync.log = connection.info.get(WAL, "")
        try:
            return self._runner.run(connection, work)
        finally:
            self._runner.connections.give_back(connection)

    def _copy_log(self) -> None:
        """Copy the log to the database, and sync that: after an error, a sync of the log says nothing any more.

        The kernel reports each error once, and takes what could not be written for written from then on.
        """
        connection = self._runner.connections.borrow()
        try:
            with waiting(connection):
                busy, *_ = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()
        finally:
            self._runner.connections.give_back(connection)
        if busy:
            raise BlockingIOError(errno.EBUSY, os.strerror(errno.EBUSY))
        self._sync.has_failed = False
