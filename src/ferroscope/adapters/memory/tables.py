"""Tables that forget: every change notes its opposite, so that a transaction can be undone.

A table is a dictionary whose values are replaced and never changed in place. Nothing may
change one outside a write; that is an error of the caller, and raised as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, TypeVar

import msgspec

from ferroscope.ports.errors import ConflictError

K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=msgspec.Struct)


def copy(value: S) -> S:
    """Return ``value`` as it looks after a way through JSON, sharing nothing with the original."""
    return msgspec.json.decode(msgspec.json.encode(value), type=type(value))


class UndoLog:
    """How to take back what the present write has done so far; no write, no changes."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] | None = None

    def begin(self) -> None:
        self._steps = []

    def note(self, undo: Callable[[], object]) -> None:
        if self._steps is None:
            raise RuntimeError("the store can only be changed by the work of a Store.write that is under way")
        self._steps.append(undo)

    def commit(self) -> None:
        self._steps = None

    def roll_back(self) -> None:
        steps, self._steps = self._steps or [], None
        for undo in reversed(steps):
            undo()


class Table(Generic[K, V]):
    """Rows by their key."""

    def __init__(self, log: UndoLog) -> None:
        self._log = log
        self._rows: dict[K, V] = {}

    def get(self, key: K) -> V | None:
        return self._rows.get(key)

    def put(self, key: K, row: V) -> None:
        """Add the row, or replace the one that has this key."""
        self._note(key)
        self._rows[key] = row

    def drop(self, key: K) -> V | None:
        """Remove and return the row; None where there is none."""
        if key not in self._rows:
            return None
        self._note(key)
        return self._rows.pop(key)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(tuple(self._rows))

    def values(self) -> tuple[V, ...]:
        return tuple(self._rows.values())

    def _note(self, key: K) -> None:
        rows = self._rows
        if key in rows:
            before = rows[key]
            self._log.note(partial(rows.__setitem__, key, before))
        else:
            self._log.note(partial(rows.pop, key))


class Index(Generic[K, V]):
    """The members of each group, in the order in which they came."""

    def __init__(self, log: UndoLog) -> None:
        self._groups: Table[K, tuple[V, ...]] = Table(log)

    def of(self, group: K) -> tuple[V, ...]:
        return self._groups.get(group) or ()

    def add(self, group: K, member: V) -> None:
        self._groups.put(group, (*self.of(group), member))

    def discard(self, group: K, member: V) -> None:
        rest = tuple(other for other in self.of(group) if other != member)
        if rest:
            self._groups.put(group, rest)
        else:
            self._groups.drop(group)

    def drop(self, group: K) -> tuple[V, ...]:
        """Forget the group and return its members."""
        return self._groups.drop(group) or ()


class Unique(Generic[K]):
    """Fields of which no two rows may have the same value; rows without a value do not count."""

    def __init__(self, log: UndoLog, *fields: str) -> None:
        self._owners: dict[str, Table[str, K]] = {field: Table(log) for field in fields}

    def owner(self, field: str, value: str) -> K | None:
        """Return the key of the row that has this value."""
        return self._owners[field].get(value)

    def take(self, key: K, row: object) -> None:
        """Enter the values of ``row``; ``ConflictError``, and nothing entered, where another row has one."""
        for field, owners in self._owners.items():
            value = getattr(row, field)
            if value is not None and owners.get(value) not in (None, key):
                raise ConflictError(field, value)
        for field, owners in self._owners.items():
            if (value := getattr(row, field)) is not None:
                owners.put(value, key)

    def free(self, row: object) -> None:
        for field, owners in self._owners.items():
            owners.drop(getattr(row, field))

    def change(self, key: K, before: object, after: object) -> None:
        """Let the values of ``after`` take the place of those of ``before``; raises as ``take`` does."""
        self.free(before)
        try:
            self.take(key, after)
        except ConflictError:
            self.take(key, before)
            raise
