"""The executor: what a statement's plan reads and writes, in the name of its transaction."""

from __future__ import annotations

from typing import Any

from tests.simulation.database.constraints import UniqueConstraints
from tests.simulation.database.locks import RowLocks
from tests.simulation.database.plan import Change, Frame, Insert, Select
from tests.simulation.database.sessions import Result, Transaction
from tests.simulation.database.storage import Key, Row, Table


class Executor:
    """Runs a plan once: to its result, a ``SqlError``, or a ``BlockedError`` where it has to wait."""

    def __init__(self, locks: RowLocks, constraints: UniqueConstraints) -> None:
        self._locks = locks
        self._constraints = constraints

    def run(self, transaction: Transaction, plan: Select | Change | Insert, frame: Frame) -> Result:
        if isinstance(plan, Select):
            rows = plan.run(frame)
            return rows, len(rows), None, len(plan.items)
        if isinstance(plan, Change):
            return self._change(transaction, plan, frame)
        return self._insert(transaction, plan, frame)

    def _change(self, transaction: Transaction, plan: Change, frame: Frame) -> Result:
        affected = plan.affected(frame)
        table = plan.source.table
        if plan.changes is not None:
            for key, present, row in affected:
                assert row is not None
                self._constraints.check(transaction, table, key, present, row)
        returned = []
        for key, present, row in affected:
            _write(transaction, table, key, row)
            frame[plan.source.slot] = present if row is None else row
            if plan.returning:
                returned.append(tuple([value(frame) for value in plan.returning]))
        return returned, len(affected), None, len(plan.returning)

    def _insert(self, transaction: Transaction, plan: Insert, frame: Frame) -> Result:
        table, last = plan.into, None
        returned: list[tuple[Any, ...]] = []
        for row in plan.new(frame):
            key = table.key_of(row)
            if plan.upsert:
                row = self._merged(transaction, plan, frame, key, row)
            else:
                self._constraints.check(transaction, table, key, None, row)
            self._locks.take_new(transaction, table, key)
            _write(transaction, table, key, row)
            last = row[table.serial] if table.serial else None
            frame[plan.slot] = row
            if plan.returning:
                returned.append(tuple([value(frame) for value in plan.returning]))
        return returned, len(plan.rows), last, len(plan.returning)

    def _merged(self, transaction: Transaction, plan: Insert, frame: Frame, key: Key, row: Row) -> Row:
        """Return what an upsert makes of the row that is there already, or the new one."""
        table = plan.into
        self._locks.take(transaction, table, key, skip=False)
        own = transaction.overlay.get(table.name, {})
        present = own[key] if key in own else table.committed(key)
        if present is None:
            self._constraints.check(transaction, table, key, None, row)
            return row
        frame[plan.slot], frame[plan.excluded] = present, row
        merged = present | {name: value(frame) for name, value in plan.upsert}
        self._constraints.check(transaction, table, key, present, merged)
        return merged


def _write(transaction: Transaction, table: Table, key: Key, row: Row | None) -> None:
    if transaction.readonly:
        raise AssertionError("a read only transaction writes")
    transaction.overlay.setdefault(table.name, {})[key] = row
