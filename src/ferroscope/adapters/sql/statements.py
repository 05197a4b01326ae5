"""Runs the constant statements of this package without compiling or wrapping anything twice.

SQLAlchemy builds and compiles each statement once for each dialect; from then on the driver gets
text and parameters. An inspection has some sixty statements, and a third of its whole cost was
spent between the two. Statements that change their shape (lists with filters, ``IN`` with a list)
go the ordinary way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.elements import ClauseElement

Parameters = dict[str, Any]

# Far more than there are statements; what shapes of queries callers think of must not add up for ever.
_KEPT: Final = 2048


class Answer(msgspec.Struct, frozen=True):
    """What came back: the rows, as the driver gave them, and how many rows were concerned."""

    rows: Sequence[Any]
    rowcount: int

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)

    def first(self) -> Any:
        """Return the first row, or None."""
        return self.rows[0] if self.rows else None

    def scalars(self) -> list[Any]:
        """Return the first column."""
        return [row[0] for row in self.rows]


class _Compiled(msgspec.Struct, frozen=True):
    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, Any]
    answers: bool  # with rows; a driver's own word for that may cost more than the rows

    def parameters(self, given: Parameters) -> Any:
        values = self.defaults | given if self.defaults else given
        if self.positions is None:
            return values
        return [values[name] for name in self.positions]


class Statements:
    """The compiled statements of one engine; its cache holds what was executed at least once."""

    def __init__(self, engine: Engine) -> None:
        self._dialect = engine.dialect
        self._errors = engine.dialect.loaded_dbapi.Error
        # The statement is kept with its text, so that its identity stays its own.
        self._compiled: dict[tuple[int, tuple[str, ...]], tuple[ClauseElement, _Compiled]] = {}

    def execute(self, cursor: Any, statement: ClauseElement, given: Parameters | Sequence[Parameters]) -> Answer:
        """Run ``statement``, once or for each of several sets of parameters; SQLAlchemy's errors."""
        sets = [given] if isinstance(given, dict) else given
        compiled = self._compile(statement, sets[0])
        try:
            if len(sets) == 1:
                cursor.execute(compiled.text, compiled.parameters(sets[0]))
            else:
                cursor.executemany(compiled.text, [compiled.parameters(one) for one in sets])
            rows = cursor.fetchall() if compiled.answers else ()
            return Answer(rows, cursor.rowcount)
        except self._errors as exc:
            gone = self._dialect.is_disconnect(exc, cursor.connection, None)
            raise DBAPIError.instance(
                compiled.text, None, exc, self._errors, connection_invalidated=gone, dialect=self._dialect
            ) from exc

    def _compile(self, statement: ClauseElement, given: Parameters) -> _Compiled:
        key = (id(statement), tuple(given))
        known = self._compiled.get(key)
        if known is None:
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            known = self._compiled[key] = (statement, self._translate(statement, given))
        return known[1]

    def _translate(self, statement: ClauseElement, given: Parameters) -> _Compiled:
        compiled: Any = statement.compile(dialect=self._dialect, column_keys=list(given))
        defaults = {name: value for name, value in compiled.params.items() if name not in given and value is not None}
        absent = {name: None for name in compiled.params if name not in given}
        positions = tuple(compiled.positiontup) if compiled.positional else None
        return _Compiled(str(compiled), positions, absent | defaults, _answers(statement))


def _answers(statement: Any) -> bool:
    return bool(statement.is_select or getattr(statement, "_returning", ()))
