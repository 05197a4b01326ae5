"""Row locks: each is held until the end of a transaction; who cannot have one waits, or is in a deadlock."""

from __future__ import annotations

from tests.simulation.database.errors import BlockedError
from tests.simulation.database.sessions import Lock, Transaction
from tests.simulation.database.storage import Key, Table


class RowLocks:
    """Who holds the lock of which row; there is no other kind of lock than the exclusive one."""

    def __init__(self) -> None:
        self._holders: dict[Lock, Transaction] = {}

    def holder(self, table: Table, key: Key) -> Transaction | None:
        return self._holders.get((table.name, key))

    def take(self, transaction: Transaction, table: Table, key: Key, *, skip: bool) -> bool:
        """Take the row's lock; False where it is skipped; ``BlockedError`` where it must be waited for."""
        name = (table.name, key)
        holder = self._holders.get(name)
        if holder is transaction:
            return True
        if holder is not None:
            if skip:
                return False
            raise BlockedError(holder, f"{table.name} {key}")
        self._holders[name] = transaction
        transaction.locks.append(name)
        return True

    def take_new(self, transaction: Transaction, table: Table, key: Key) -> None:
        """Take the lock of a row that is new, whoever holds that of one that is gone."""
        name = (table.name, key)
        if self._holders.get(name) is not transaction:
            self._holders[name] = transaction
            transaction.locks.append(name)

    def release(self, transaction: Transaction) -> None:
        for name in transaction.locks:
            if self._holders.get(name) is transaction:
                del self._holders[name]


def is_deadlock(transaction: Transaction | None, holder: Transaction) -> bool:
    """Whether ``holder`` waits, perhaps for one that waits, for ``transaction``."""
    seen: Transaction | None = holder
    steps = 0
    while seen is not None and steps < 100:
        if seen is transaction:
            return True
        waiting = seen.session.waiting
        seen = waiting.waits_for if waiting is not None else None
        steps += 1
    return False
