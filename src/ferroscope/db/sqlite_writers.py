"""The writers of a process to SQLite, which has one: whose turn it is, among its threads and among processes.

One thread runs the units of work of several, in one transaction and with one sync. A thread that finds the lead free
takes it: it runs what has arrived meanwhile, and hands the lead to the first of those that came later. So threads do
not pass a lock to each other: each handover would cost two switches between threads, during which nothing is written.

SQLite itself polls for its write lock with increasing pauses, which leaves a fifth of the machine idle with two busy
processes. Here they first acquire a lock on a file beside the database, which the kernel releases when a process dies.
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
from functools import partial
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.db.connections import ConnectionPool
from ferroscope.db.errors import classify, is_elsewhere
from ferroscope.db.executor import execute, rollback
from ferroscope.db.sqlite import BEGIN, is_open, waiting
from ferroscope_client.core.database_fault import DatabaseFault

W = TypeVar("W")
R = TypeVar("R")

_log = structlog.get_logger(__name__)


class WalSync:
    """Makes commits durable after they were made, for all threads that wait for it at the same time.

    SQLite itself would sync its write-ahead log within COMMIT, and no other thread could write meanwhile: a disk that
    needs 5 ms for it would limit a site to 200 durable commits per second. With ``synchronous = NORMAL`` COMMIT only
    writes the log. A writer that needs durability then syncs the log. That makes all earlier commits durable, too.

    ``log`` is the path of the write-ahead log; "" if SQLite has none, and syncs by itself.
    ``has_failed``: a sync has failed. The log may have a hole, or its file may be gone, and no later sync says so.
    """

    def __init__(self) -> None:
        self.log = ""
        self.has_failed = False
        self._syncing = threading.Lock()
        self._begun = self._ended = 0
        self._entry = 0  # the inode of the log whose directory entry is durable

    def __call__(self) -> None:
        """Return when all commits before the call are durable; ``OSError``, also if the log was deleted."""
        # A sync that has begun already may have missed the last commit.
        needed = self._begun + 1
        with self._syncing:
            if self._ended >= needed:
                return
            if self.has_failed:  # while this thread waited; the kernel would not report it again
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self._begun += 1
            try:
                self._sync()
            except OSError:
                self.has_failed = True
                raise
            self._ended = self._begun

    def _sync(self) -> None:
        if not self.log:
            return
        file = os.open(self.log, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fdatasync(file)
            if (inode := os.fstat(file).st_ino) != self._entry:
                self._sync_directory()
                self._entry = inode
        finally:
            os.close(file)

    def _sync_directory(self) -> None:
        directory = os.open(Path(self.log).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # some file systems cannot, and do not need to
                os.fsync(directory)
        finally:
            os.close(directory)


# The first unit of a group has to wait for the last one, too.
_MAX_GROUP: Final = 16


class Unit(msgspec.Struct, Generic[W, R], eq=False):
    """A unit of work that waits for its turn, and what came of it; its thread is woken by the release of a lock."""

    work: W
    woken: Any
    leads: bool = False
    is_done: bool = False
    result: R | None = None
    error: BaseException | None = None

    def run(self, call: Callable[[W], R | None]) -> None:
        """Keep what ``call`` returns or raises."""
        self.error = None
        try:
            self.result = call(self.work)
        except Exception as exc:  # noqa: BLE001  # raised again in the thread that waits for it
            self.error = exc


class WriteTurns(Generic[W, R]):
    """Runs the work of many threads, one group at a time: a single unit by ``run``, several by ``run_group``.

    ``run_group`` gives each unit a result or an error; what it raises is the error of all of them. ``lock`` is acquired
    before a group is formed: units that arrive while it waits are part of the group. ``timeout``: seconds to wait.
    """

    def __init__(
        self,
        run: Callable[[W], R | None],
        run_group: Callable[[Sequence[Unit[W, R]]], None],
        lock: SqliteWriteLock,
        timeout: float,
    ) -> None:
        self._run, self._run_group, self._file_lock, self._timeout = run, run_group, lock, timeout
        self._lock = threading.Lock()
        self._waiting: deque[Unit[W, R]] = deque()
        self._is_led = False

    def write(self, work: W) -> R | None:
        """Return what came of the work, or raise its error.

        ``StoreUnavailableError``: it was not begun in time. ``OutcomeUnknownError``: the thread that ran it was ended.
        """
        unit: Unit[W, R] = Unit(work, threading.Lock())
        unit.woken.acquire()
        with self._lock:
            unit.leads, self._is_led = not self._is_led, True
            self._waiting.append(unit)
        if not unit.leads:
            self._await(unit)
        if not unit.is_done:  # this thread leads: its own unit is the first that waits
            group, is_locked = [unit], False
            try:
                is_locked = self._file_lock.acquire()
                with self._lock:
                    group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MAX_GROUP))]
                if len(group) == 1:
                    return self._run(work)
                self._run_group(group)
            except BaseException as exc:
                _fail(group, exc)
                raise
            finally:
                if is_locked:
                    self._file_lock.release()
                self._hand_over(group)
        if unit.error is not None:
            raise unit.error
        return unit.result

    def _await(self, unit: Unit[W, R]) -> None:
        """Wait until the unit is done, or leads."""
        try:
            woken = unit.woken.acquire(timeout=self._timeout)
            if not woken and not self._withdraw(unit):
                woken = unit.woken.acquire()  # it has been begun
        except BaseException:
            with self._lock:
                if unit in self._waiting:
                    self._waiting.remove(unit)
            if unit.leads and not unit.is_done:
                self._hand_over(())
            raise
        if not woken:
            message = "another thread has held the database's write lock for too long"
            raise StoreUnavailableError(message, DatabaseFault.LOCKED)

    def _withdraw(self, unit: Unit[W, R]) -> bool:
        """Take back a unit that has not been begun, and is not to lead; return whether it could be."""
        with self._lock:
            if unit not in self._waiting or unit.leads:
                return False
            self._waiting.remove(unit)
            return True

    def _hand_over(self, group: Sequence[Unit[W, R]]) -> None:
        """Wake up the threads whose work has ended, and the next leader."""
        with self._lock:
            for unit in group:
                unit.is_done = True
                if unit in self._waiting:  # it was never begun
                    self._waiting.remove(unit)
            successor = self._waiting[0] if self._waiting else None
            self._is_led = successor is not None
            if successor is not None:
                successor.leads = True
        for unit in group if successor is None else (successor, *group):
            unit.woken.release()


def _fail(group: Sequence[Unit[Any, Any]], exc: BaseException) -> None:
    """Give the units of a group the error that ended all of it."""
    if not isinstance(exc, Exception):  # such as an interrupt of the thread that ran them
        exc = OutcomeUnknownError("the thread that wrote was ended; the change may have been stored")
    for unit in group:
        unit.error = exc


# Seconds between attempts to lock the file, about one transaction. A blocking flock could not time out.
_POLL_INTERVAL: Final = 0.0003
# After a timeout, seconds for which the lock is only tried without waiting.
_BYPASS_SECONDS: Final = 30.0
# Only the owner may lock the file: users who cannot write the database must not delay its writers.
_FILE_MODE: Final = 0o600


class SqliteWriteLock:
    """``path`` is the lock file; ``timeout`` the seconds to wait for it. For one thread at a time.

    It only improves throughput: safety depends on SQLite's own lock alone. So a process that cannot use the file
    (read-only, missing) writes without it, and so does one whose wait timed out: the holder may never write. The wait
    ignores the stop flag, since a process that stops must still write (release its claims, leave the members), and it
    is limited anyway.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self._path = path
        self._timeout = timeout
        self._file: int | None = None
        self._bypassed_until = float("-inf")

    def acquire(self) -> bool:
        """Acquire the lock; return False if that took too long, and the caller has to do without it."""
        if self._file is None and not self._open():
            return False
        file, now = self._file, time.monotonic()
        deadline = now if now < self._bypassed_until else now + self._timeout
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
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

    def release(self) -> None:
        """Release the lock. It never raises: what was written is committed."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _open(self) -> bool:
        try:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _FILE_MODE)
        except OSError:
            return False
        weakref.finalize(self, os.close, self._file)
        with contextlib.suppress(OSError):  # an earlier release may have created it with wider permissions
            os.fchmod(self._file, _FILE_MODE)
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


class SqliteWriters(Generic[W, R]):
    """Writes to one file. ``run`` runs a unit of work alone, and ``run_part`` as a part of the open transaction.

    ``commit`` commits the results of a group on a connection. ``timeout``: seconds to wait for one's turn, most of them
    for SQLite's own lock.
    """

    def __init__(
        self,
        engine: Engine,
        connections: ConnectionPool,
        *,
        run: Callable[[W], R | None],
        run_part: Callable[[Connection, W], R],
        commit: Callable[[Connection, Sequence[R]], None],
        timeout: float,
    ) -> None:
        self._connections, self._run, self._run_part, self._commit = connections, run, run_part, commit
        # A thread that waits for the file lock blocks the others, so most of the time is for SQLite's own.
        lock = SqliteWriteLock(f"{engine.url.database}-writelock", min(1.0, timeout / 4))
        self.turns = WriteTurns(run, self._run_group, lock, timeout)
        self._sync = WalSync()

    def sync(self) -> None:
        """Return when all that was committed before is durable; ``OSError``, ``DBAPIError``, ``queue.Empty``."""
        if self._sync.has_failed:
            self._copy_log()
        try:
            self._sync.log = self._connections.log
            self._sync()
        except FileNotFoundError:  # it was deleted, but SQLite still has it open
            self._copy_log()

    def _run_group(self, units: Sequence[Unit[W, R]]) -> None:
        """Run all of them in one transaction of SQLite, each under a savepoint."""
        connection = self._connections.borrow()
        try:
            if self._run_together(connection, units):
                return
        finally:
            self._connections.give_back(connection)
        for unit in units:
            unit.run(self._run)

    def _run_together(self, connection: Connection, units: Sequence[Unit[W, R]]) -> bool:
        """Commit all units that do not fail; return False if nothing was committed, and each has to run alone.

        That is so if SQLite has rolled back all of them because of one, or if another connection may be better.
        """
        try:
            execute(connection, BEGIN.text)
        except DBAPIError as exc:
            if classify(exc) == "busy":
                raise
            rollback(connection)
            return False
        try:
            for unit in units:
                unit.run(partial(self._run_part, connection))
                failed = unit.error
                if not is_open(connection) or (isinstance(failed, DBAPIError) and is_elsewhere(failed)):
                    rollback(connection)
                    return False
            self._commit(connection, [unit.result for unit in units if unit.error is None and unit.result is not None])
        except BaseException:
            rollback(connection)
            raise
        return True

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
