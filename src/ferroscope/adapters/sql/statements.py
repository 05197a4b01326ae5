"""The constant statements of this package, compiled once: text and parameters are all that a driver gets.

SQLAlchemy builds and compiles each statement once for each dialect. An inspection has some sixty
statements, and a third of its whole cost was spent between statement and driver. Statements that change
their shape (lists with filters, ``IN`` with a list) go the ordinary way. How they are sent: ``batch``.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Dialect, Engine
from sqlalchemy.sql.elements import ClauseElement

Parameters = dict[str, Any]

# Far more than there are statements; what shapes of queries callers think of must not add up for ever.
_KEPT: Final = 2048


class Compiled(msgspec.Struct, frozen=True):
    """A statement in the driver's words."""

    text: str
    positions: tuple[str, ...] | None
    defaults: dict[str, Any]
    answers: bool  # with rows; a driver's own word for that may cost more than the rows

    def parameters(self, given: Parameters) -> Any:
        """Return the values as the driver wants them."""
        values = self.defaults | given if self.defaults else given
        if self.positions is None:
            return values
        return [values[name] for name in self.positions]


class Statements:
    """The compiled statements of one engine; its cache holds what was executed at least once."""

    def __init__(self, engine: Engine) -> None:
        self.dialect: Dialect = engine.dialect
        # The statement is kept with its text, so that its identity stays its own.
        self._compiled: dict[tuple[int, tuple[str, ...]], tuple[ClauseElement, Compiled]] = {}

    def compile(self, statement: ClauseElement, given: Parameters) -> Compiled:
        """Return ``statement`` in the driver's words, for parameters of these names."""
        key = (id(statement), tuple(given))
        known = self._compiled.get(key)
        if known is None:
            if len(self._compiled) >= _KEPT:
                self._compiled.clear()
            known = self._compiled[key] = (statement, self._translate(statement, given))
        return known[1]

    def _translate(self, statement: ClauseElement, given: Parameters) -> Compiled:
        compiled: Any = statement.compile(dialect=self.dialect, column_keys=list(given))
        defaults = {name: value for name, value in compiled.params.items() if name not in given and value is not None}
        absent = {name: None for name in compiled.params if name not in given}
        positions = tuple(compiled.positiontup) if compiled.positional else None
        return Compiled(str(compiled), positions, absent | defaults, _answers(statement))


def _answers(statement: Any) -> bool:
    return bool(statement.is_select or getattr(statement, "_returning", ()))
