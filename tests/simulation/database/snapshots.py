"""Snapshots: the tables as one statement sees them, with what its own transaction has written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.simulation.database.errors import SqlError
from tests.simulation.database.plan import Select
from tests.simulation.database.storage import Key, Row, Table

if TYPE_CHECKING:
    from tests.simulation.database.locks import RowLocks
    from tests.simulation.database.sessions import Transaction


class StatementView:
    """``now`` is the database's clock, ``snapshot`` the number of the last commit that the statement sees."""

    __slots__ = ("_locks", "_memory", "_snapshot", "_transaction", "now")

    def __init__(self, now: Callable[[], float], locks: RowLocks, transaction: Transaction, snapshot: int) -> None:
        self.now = now
        self._locks = locks
        self._transaction = transaction
        self._snapshot = snapshot
        self._memory: dict[Select, Any] = {}

    def rows(self, table: Table) -> Iterable[tuple[Key, Row]]:
        committed = table.rows(self._snapshot)
        own = self._transaction.overlay.get(table.name)
        if not own:
            return committed
        present = [(key, row) for key, row in committed if key not in own]
        return present + [(key, mine) for key, mine in own.items() if mine is not None]

    def row(self, table: Table, key: Key) -> Row | None:
        own = self._transaction.overlay.get(table.name)
        if own is not None and key in own:
            return own[key]
        return table.at(key, self._snapshot)

    def lock(self, table: Table, key: Key, seen: Row, *, skip: bool) -> Row | None:
        if not self._locks.take(self._transaction, table, key, skip=skip):
            return None
        own = self._transaction.overlay.get(table.name)
        if own is not None and key in own:
            return own[key]
        present = table.committed(key)
        if present is not seen and self._transaction.repeatable:
            raise SqlError("serialization")
        return present

    def remembers(self, query: Select) -> bool:
        return query in self._memory

    def remembered(self, query: Select) -> Any:
        return self._memory[query]

    def remember(self, query: Select, value: Any) -> Any:
        self._memory[query] = value
        return value
