"""Primary keys and unique columns: a row that is there already is an error, one that may come is waited for."""

from __future__ import annotations

from collections.abc import Iterable

from tests.simulation.database.errors import BlockedError, SqlError
from tests.simulation.database.locks import RowLocks
from tests.simulation.database.sessions import Transaction
from tests.simulation.database.storage import Key, Row, Table


class UniqueConstraints:
    """``transactions`` are those that are open: what they have written may be committed or not."""

    def __init__(self, locks: RowLocks, transactions: Iterable[Transaction]) -> None:
        self._locks = locks
        self._transactions = transactions

    def check(self, transaction: Transaction, table: Table, key: Key, present: Row | None, row: Row) -> None:
        """Raise where ``row`` must not, or must not yet, be in place of ``present`` (None: be new)."""
        if present is None:
            self._check_key(transaction, table, key)
        for column in table.uniques:
            value = row[column]
            if value is None or (present is not None and present[column] == value):
                continue
            own = transaction.overlay.get(table.name, {})
            for other, version in table.heads.items():
                if other == key or version.row is None or version.row[column] != value:
                    continue
                if other in own:
                    continue
                holder = self._locks.holder(table, other)
                if holder is not None and holder.overlay.get(table.name, {}).get(other, version.row) is not version.row:
                    raise BlockedError(holder, f"{table.name}.{column}")
                raise SqlError("unique", f"uq_{table.name}_{column}", str(value))
            for other, mine in own.items():
                if other != key and mine is not None and mine[column] == value:
                    raise SqlError("unique", f"uq_{table.name}_{column}", str(value))
            for rival in self._transactions:
                if rival is transaction:
                    continue
                for other, theirs in rival.overlay.get(table.name, {}).items():
                    if other != key and theirs is not None and theirs[column] == value:
                        raise BlockedError(rival, f"{table.name}.{column}")

    def _check_key(self, transaction: Transaction, table: Table, key: Key) -> None:
        own = transaction.overlay.get(table.name, {})
        holder = self._locks.holder(table, key)
        if holder is not None and holder is not transaction and key in holder.overlay.get(table.name, {}):
            raise BlockedError(holder, f"{table.name} {key}")
        taken = own[key] if key in own else table.committed(key)
        if taken is not None:
            raise SqlError("unique", f"pk_{table.name}", str(key[0]))
