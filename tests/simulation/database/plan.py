"""Plans: what a statement does, as functions that are run against a view of the tables.

A function of an expression takes the frame: a list of the parameters, the view, and the present row
of each table that the statement reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tests.simulation.database.storage import Key, Row, Table
from tests.simulation.database.text import Tree

Frame = list[Any]
Value = Callable[[Frame], Any]


class View(Protocol):
    """What a statement sees and does; ``snapshots`` has the one of a transaction."""

    def now(self) -> float: ...
    def rows(self, table: Table) -> Iterable[tuple[Key, Row]]: ...
    def row(self, table: Table, key: Key) -> Row | None: ...
    def lock(self, table: Table, key: Key, seen: Row, *, skip: bool) -> Row | None:
        """Lock the row and return it as it is by now: None where it is gone or is to be skipped."""


class Source:
    """A table in FROM: its slot in the frame, and the key where WHERE names it."""

    def __init__(self, table: Table, slot: int) -> None:
        self.table = table
        self.slot = slot
        self.key: Value | None = None

    def scan(self, frame: Frame) -> Iterable[tuple[Key, Row]]:
        if self.key is None:
            return frame[1].rows(self.table)  # type: ignore[no-any-return]
        key = (self.key(frame),)
        row = frame[1].row(self.table, key)
        return () if row is None else ((key, row),)

    def lock(self, frame: Frame, key: Key, row: Row, where: Value | None, *, skip: bool) -> Row | None:
        """Lock a row that matched and put it into the frame; None where it is gone, skipped, or matches no more."""
        present: Row | None = frame[1].lock(self.table, key, row, skip=skip)
        if present is None:
            return None
        frame[self.slot] = present
        if present is not row and where is not None and where(frame) is not True:
            return None
        return present


class Derived(Source):
    """A query in FROM; ``names`` are what its columns are called."""

    def __init__(self, query: Select, names: list[str], slot: int) -> None:
        super().__init__(Table.of(names), slot)
        self._query = query
        self._names = names

    def scan(self, frame: Frame) -> Iterable[tuple[Key, Row]]:
        return [((), dict(zip(self._names, row, strict=True))) for row in self._query.run(frame)]


class Select:
    """Rows that match, in order, locked where the statement says so."""

    writes = False

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.where: Value | None = None
        self.items: list[Value] = []
        self.aggregate = False
        self.order: list[tuple[Value, bool]] = []
        self.limit: Value | None = None
        self.locks = False
        self.skip = False
        self.width = 0

    def matching(self, frame: Frame, depth: int = 0) -> Iterator[None]:
        """Step through the combinations of rows that match; they are in the frame meanwhile."""
        if depth == len(self.sources):
            if self.where is None or self.where(frame) is True:
                yield
            return
        source = self.sources[depth]
        for _, row in source.scan(frame):
            frame[source.slot] = row
            yield from self.matching(frame, depth + 1)

    def run(self, frame: Frame) -> list[tuple[Any, ...]]:
        if self.aggregate:
            return [tuple(item(frame) for item in self.items)]
        if self.locks:
            return self.run_locked(frame)
        limit = None if self.limit is None else self.limit(frame)
        found = []
        for _ in self.matching(frame):
            rank = [_rank(key(frame)) for key, _ in self.order]
            found.append((rank, tuple([item(frame) for item in self.items])))
            if limit is not None and not self.order and len(found) >= limit:
                break
        self._sort(found)
        return [values for _, values in found[:limit]]

    def _sort(self, found: list[Any]) -> None:
        """Sort entries by their first items, which are lists of ranks."""
        for place in range(len(self.order) - 1, -1, -1):
            found.sort(key=lambda entry, place=place: entry[0][place], reverse=self.order[place][1])  # type: ignore[misc]

    def run_locked(self, frame: Frame) -> list[tuple[Any, ...]]:
        """FOR UPDATE: in order, lock what matches, look again at what changed meanwhile."""
        (source,) = self.sources
        limit = None if self.limit is None else self.limit(frame)
        found = []
        for key, row in source.scan(frame):
            frame[source.slot] = row
            if self.where is None or self.where(frame) is True:
                found.append(([_rank(value(frame)) for value, _ in self.order], key, row))
        self._sort(found)
        locked = []
        for _, key, row in found:
            if limit is not None and len(locked) >= limit:
                break
            if source.lock(frame, key, row, self.where, skip=self.skip) is not None:
                locked.append(tuple([item(frame) for item in self.items]))
        return locked


class Change:
    """UPDATE (``changes``) or DELETE (no changes) of the rows that match."""

    writes = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self.where: Value | None = None
        self.changes: list[tuple[str, Value]] | None = None
        self.returning: list[Value] = []
        self.width = 0

    def affected(self, frame: Frame) -> list[tuple[Key, Row, Row | None]]:
        """Lock what matches; return key, present row and new row (None: deleted) of each."""
        source, where = self.source, self.where
        found = []
        for key, row in source.scan(frame):
            frame[source.slot] = row
            if where is None or where(frame) is True:
                found.append((key, row))
        result: list[tuple[Key, Row, Row | None]] = []
        for key, row in found:
            present = source.lock(frame, key, row, where, skip=False)
            if present is None:
                continue
            if self.changes is None:
                result.append((key, present, None))
            else:
                result.append((key, present, present | {name: value(frame) for name, value in self.changes}))
        return result


class Insert:
    """New rows; a serial key that is not given is the next number.

    ``upsert`` is what to change where the key is there already; the new row is then in ``excluded``.
    """

    writes = True

    def __init__(self, table: Table) -> None:
        self.into = table
        self.rows: list[list[tuple[str, Value]]] = []
        self.upsert: list[tuple[str, Value]] = []
        self.excluded = 0
        self.returning: list[Value] = []
        self.slot = 2
        self.width = 3

    def new(self, frame: Frame) -> list[Row]:
        empty = dict.fromkeys(self.into.columns)
        result = []
        for values in self.rows:
            row = empty | {name: value(frame) for name, value in values}
            if self.into.serial is not None and row[self.into.serial] is None:
                self.into.last += 1
                row[self.into.serial] = self.into.last
            result.append(row)
        return result


class Control:
    """BEGIN, COMMIT and their like."""

    writes = False
    width = 2

    def __init__(self, tree: Tree) -> None:
        self.kind = tree[0]
        self.arguments = tree[1:]


Plan = Select | Change | Insert | Control


def _rank(value: Any) -> tuple[bool, Any]:
    return (False, 0) if value is None else (True, value)
