"""The writers of a process to SQLite, which has one: whose turn it is, among its threads and among processes.

One thread carries out the units of work of several, in one transaction and with one sync. A thread that finds nobody at
work leads: it takes what has arrived meanwhile, carries all of it out, and hands the lead to the first of those that
came later. So threads do not pass a lock to each other, of which each handover costs two switches between threads,
during which nobody writes.

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
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.core.database_fault import DatabaseFault
from ferroscope.db import executor
from ferroscope.db.errors import classify, is_elsewhere
from ferroscope.db.sqlite import WAL, WalSync, waiting
from ferroscope.db.unit_of_work import Done, Runner, Work

T = TypeVar("T")
D = TypeVar("D")

# How many are carried out at once; those who wait for the first one wait for the last one, too.
_MAX_GROUP: Final = 16


class AbandonedError(Exception):
    """The thread that carried out the unit was ended, as by an interrupt; what became of the unit is not known."""


class Unit(Generic[T, D]):
    """Something to carry out, and what came of it. It sees the context variables of the thread that asked for it."""

    __slots__ = ("context", "done", "error", "leads", "result", "task", "woken")

    def __init__(self, task: T, context: Context | None) -> None:
        self.task = task
        self.context = context
        self.woken = threading.Lock()
        self.woken.acquire()
        self.leads = self.done = False
        self.result: D = None  # type: ignore[assignment]  # until it is done
        self.error: BaseException | None = None

    def run(self, call: Callable[[T], D]) -> None:
        """Keep what ``call`` returns or raises."""
        self.error = None
        try:
            self.result = call(self.task) if self.context is None else self.context.run(call, self.task)
        except Exception as exc:  # noqa: BLE001  # raised again in the thread that asked for it
            self.error = exc


class Together(Generic[T, D]):
    """``carry_out`` gives each unit a result or an error; what it raises is the error of all of them.

    ``turn`` is entered before a group is formed: whoever comes while it waits is part of the group.
    """

    def __init__(
        self, carry_out: Callable[[Sequence[Unit[T, D]]], None], turn: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._carry_out = carry_out
        self._turn = turn
        self._lock = threading.Lock()
        self._waiting: deque[Unit[T, D]] = deque()
        self._is_led = False

    def run(self, task: T, timeout: float) -> D:
        """Return what came of it, or raise its error; ``TimeoutError`` if it was not begun within so many seconds."""
        with self._lock:
            leads, self._is_led = not self._is_led, True
            unit: Unit[T, D] = Unit(task, None if leads else copy_context())
            self._waiting.append(unit)
        if not leads:
            self._await(unit, timeout)
        if not unit.done:
            self._lead(unit)
        if unit.error is not None:
            raise unit.error
        return unit.result

    def _await(self, unit: Unit[T, D], timeout: float) -> None:
        """Wait until the unit is done, or leads."""
        try:
            woken = unit.woken.acquire(timeout=timeout)
            if not woken and not self._withdraw(unit):
                woken = unit.woken.acquire()  # it has been begun
        except BaseException:
            self._leave(unit)
            raise
        if not woken:
            raise TimeoutError

    def _withdraw(self, unit: Unit[T, D]) -> bool:
        """Take back a unit that has not been begun, and is not to lead; return whether it could be."""
        with self._lock:
            if unit not in self._waiting or unit.leads:
                return False
            self._waiting.remove(unit)
            return True

    def _leave(self, unit: Unit[T, D]) -> None:
        """Nobody waits for the unit any more, which may have been told to lead."""
        with self._lock:
            if unit in self._waiting:
                self._waiting.remove(unit)
        if unit.leads and not unit.done:
            self._hand_over(())

    def _lead(self, own: Unit[T, D]) -> None:
        """Carry out what waits, of which ``own`` is the first."""
        group: list[Unit[T, D]] = []
        try:
            with self._turn():
                with self._lock:
                    group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_GROUP))]
                self._carry_out(group)
        except BaseException as exc:
            if not group:
                with self._lock:
                    self._waiting.remove(own)
                group = [own]
            for unit in group:
                unit.error = exc if isinstance(exc, Exception) else AbandonedError(type(exc).__name__)
            if not isinstance(exc, Exception):
                raise
        finally:
            self._hand_over(group)

    def _hand_over(self, group: Sequence[Unit[T, D]]) -> None:
        with self._lock:
            successor = self._waiting[0] if self._waiting else None
            self._is_led = successor is not None
            if successor is not None:
                successor.leads = True
        if successor is not None:
            successor.woken.release()
        for unit in group:
            unit.done = True
            unit.woken.release()


# Seconds between attempts, about one transaction. A blocking flock could not time out.
_POLL_INTERVAL: Final = 0.0003
# After a timeout, seconds for which the lock is only tried without waiting.
_BYPASS_SECONDS: Final = 30.0
# Only users who can write the database may lock the file.
_FILE_MODE: Final = 0o600

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
        file = self._open()
        return file is not None and self._acquire(file)

    def release(self) -> None:
        """Release the lock, which was acquired."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def _open(self) -> int | None:
        if self._file is None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, _FILE_MODE)
            except OSError:
                return None
            weakref.finalize(self, os.close, self._file)
            with contextlib.suppress(OSError):  # an earlier release may have created it with wider permissions
                os.fchmod(self._file, _FILE_MODE)
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
            self._bypassed_until = time.monotonic() + _BYPASS_SECONDS
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
        self._together: Together[Work, Done | None] = Together(
            self._write_all, write_lock(engine, min(1.0, timeout / 4))
        )
        self._sync = WalSync()

    def write(self, work: Work) -> Done | None:
        """Run ``work``, together with the other threads that want to write; see ``Runner.run``."""
        try:
            return self._together.run(work, self._timeout)
        except TimeoutError:
            message = "another thread has held the database's write lock for too long"
            raise StoreUnavailableError(message, DatabaseFault.LOCKED) from None
        except AbandonedError as exc:
            raise OutcomeUnknownError("the thread that wrote was ended; the change may have been stored") from exc

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
