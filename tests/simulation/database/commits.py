"""Commits: the order in which transactions took effect, and what a fail-over takes back of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from tests.simulation.database.sessions import Transaction
from tests.simulation.database.storage import Key, Row, Table
from tests.simulation.kernel import Task


class Changed(msgspec.Struct, frozen=True):
    """One row that a commit changed; None: it was not there, or is there no more."""

    table: str
    key: Key
    before: Row | None
    after: Row | None


class Commit(msgspec.Struct):
    """One committed transaction that changed something, and the task that made it."""

    sequence: int
    durable: bool
    changes: list[Changed]
    task: Task | None
    at: float


class CommitLog:
    """``watch`` is told of each commit before it takes effect, ``forgot`` of those that were lost.

    ``sequence`` is the number of the last change to the tables, ``commits`` how many commits there were.
    """

    def __init__(self, tables: dict[str, Table]) -> None:
        self.sequence = 0
        self.commits = 0
        self.watch: Callable[[Commit], object] = lambda _commit: None
        self.forgot: Callable[[list[Commit]], object] = lambda _commits: None
        self._tables = tables
        self._last: deque[Commit] = deque(maxlen=200)
        self._snapshots: list[int] = []

    def hold(self) -> int:
        """Return a snapshot of the present; older versions of rows are kept until it is let go."""
        self._snapshots.append(self.sequence)
        return self.sequence

    def let_go(self, snapshot: int) -> None:
        self._snapshots.remove(snapshot)

    def append(self, transaction: Transaction, now: float) -> None:
        """Let what the transaction has written take effect."""
        self.commits += 1
        keep = bool(self._snapshots)
        changes = []
        for name, rows in transaction.overlay.items():
            table = self._tables[name]
            changes += [Changed(name, key, table.committed(key), row) for key, row in rows.items()]
        commit = Commit(self.sequence + 1, transaction.durable, changes, transaction.session.task, now)
        self.watch(commit)
        self.sequence += 1
        for change in changes:
            self._tables[change.table].put(change.key, change.after, self.sequence, keep=keep)
        self._last.append(commit)

    def take_back(self, lost: int, *, durable_too: bool) -> list[Commit]:
        """Take back up to ``lost`` of the last commits, the newest first; return those.

        Without ``durable_too`` only those that nobody asked to be durable, and after which no
        durable one came.
        """
        gone: list[Commit] = []
        while self._last and len(gone) < lost and (durable_too or not self._last[-1].durable):
            commit = self._last.pop()
            self.sequence += 1
            for change in reversed(commit.changes):
                self._tables[change.table].put(change.key, change.before, self.sequence, keep=False)
            gone.append(commit)
        self.forgot(gone)
        return gone
