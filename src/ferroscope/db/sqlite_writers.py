"""The writers of a process to SQLite, which has one writer: those that come together share a transaction and a sync."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from ferroscope.contracts.errors import OutcomeUnknownError, StoreUnavailableError
from ferroscope.db import executor
from ferroscope.db.engine import WAL, waiting
from ferroscope.db.errors import classify, is_elsewhere
from ferroscope.db.sqlite_turns import AbandonedError, Together, Unit, write_lock
from ferroscope.db.unit_of_work import Done, Runner, Work


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
            raise StoreUnavailableError("another thread has held the database's write lock for too long") from None
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


class WalSync:
    """Makes commits durable after they were made, for all threads that wait for it at the same time.

    SQLite itself would sync its write-ahead log within COMMIT, and nobody else can write meanwhile: a disk that needs 5
    ms for it would limit a site to 200 durable commits per second. With ``synchronous = NORMAL`` COMMIT only writes the
    log. Whoever needs durability then syncs the log, which makes all commits before it durable as well, in their order.

    ``log`` is the path of the write-ahead log; "" if SQLite has none, and syncs by itself.
    ``has_failed``: a sync has failed, so the log may have a hole, which no later sync reports, or nobody will find it.
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
            if self.has_failed:  # while this thread waited; a sync of its own would not be told
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
            with suppress(OSError):  # some file systems cannot, and do not need to
                os.fsync(directory)
        finally:
            os.close(directory)
