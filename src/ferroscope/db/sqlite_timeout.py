"""The time limit of one statement of SQLite, which runs in the thread that asks: the servers of others have their own.

Between instructions of its virtual machine, SQLite asks whether to go on. What waits for a disk or a lock is not asked.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Any, Final

# A question takes a microsecond, and so many instructions about a millisecond.
_INSTRUCTIONS: Final = 20_000


class _Deadline:
    """When the statement that was begun last has to end. The connection has it, and not the other way round."""

    at = 0.0

    def passed(self) -> bool:
        return time.monotonic() > self.at


class TimedConnection(sqlite3.Connection):
    """Interrupts a statement that has run for ``seconds``: the error is ``SQLITE_INTERRUPT``."""

    def __init__(self, *arguments: Any, seconds: float, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.seconds = seconds
        self.deadline = _Deadline()
        self.set_progress_handler(self.deadline.passed, _INSTRUCTIONS)

    def cursor(self, factory: Any = None) -> Any:
        """Return a cursor whose statements are limited."""
        return super().cursor(factory or TimedCursor)


class TimedCursor(sqlite3.Cursor):
    """The time runs from the execution on; who reads rows one by one may take as long between them as they need."""

    def execute(self, *arguments: Any) -> Any:
        self._begin()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> Any:
        self._begin()
        return super().executemany(*arguments)

    def fetchone(self) -> Any:
        self._begin()
        return super().fetchone()

    def fetchmany(self, *arguments: Any, **options: Any) -> Any:
        self._begin()
        return super().fetchmany(*arguments, **options)

    def _begin(self) -> None:
        connection: Any = self.connection
        connection.deadline.at = time.monotonic() + connection.seconds
