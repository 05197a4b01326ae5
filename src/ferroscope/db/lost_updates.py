"""Finds lost updates within one transaction: a struct is written that was read before the same transaction wrote its
row.

Between transactions, versions and locks prevent that. Within one, the version alone would report another process where
there is none, so that the caller repeats the request for ever; and a record without a version would be reverted in
silence. Both are mistakes in the program, so they are raised where they are made, whatever the database.
"""

from __future__ import annotations

from typing import Final

from ferroscope.contracts.errors import LostUpdateError

_REMOVED: Final = object()


class Written:
    """The rows that a transaction has written. A row's ``mark`` differs after each write: its version, or its time."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, str], object] = {}

    def check(self, kind: str, uuid: str, mark: object) -> None:
        """Raise ``LostUpdateError`` if a struct with this mark is older than what this transaction wrote."""
        written = self._marks.get((kind, uuid), mark)
        if written != mark:
            raise LostUpdateError(kind, uuid, removed=written is _REMOVED)

    def note(self, kind: str, uuid: str, mark: object) -> None:
        """Remember the mark of a row that has been added or updated."""
        self._marks[kind, uuid] = mark

    def removed(self, kind: str, uuid: str) -> None:
        """Remember that a row has been removed."""
        self._marks[kind, uuid] = _REMOVED
