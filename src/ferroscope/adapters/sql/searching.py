"""A search's query as a condition in SQL on a row of ``nodes``; its meaning is ``hardware.expressions``.

Every test of a column is false where the column is NULL, so that negation is what it says and no
third truth value comes into it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Boolean, ColumnElement, String, and_, case, exists, func, not_, or_, select

from ferroscope.adapters.sql import schema
from ferroscope.hardware import expressions
from ferroscope.hardware.expressions import COMPARE

_ESCAPE: Final = "!"
_EXACT: Final = str.maketrans({_ESCAPE: _ESCAPE * 2, "%": f"{_ESCAPE}%", "_": f"{_ESCAPE}_"})
_LIKE: Final = _EXACT | str.maketrans({"*": "%", "?": "_"})


def condition(query: expressions.Query) -> ColumnElement[bool]:
    """Return the condition that the query is on a node."""
    match query:
        case expressions.Not(of):
            return not_(condition(of))
        case expressions.All(of):
            return and_(*(condition(one) for one in of))
        case expressions.Any(of):
            return or_(*(condition(one) for one in of))
        case expressions.Some():
            return exists().where(_parts(query))
        case expressions.Count(some, op, value):
            number = select(func.count()).where(_parts(some)).scalar_subquery()
            return COMPARE[op](number, value)  # type: ignore[arg-type,return-value]
        case expressions.Own(of):
            return _holds(of, _own)
        case expressions.Word(text):
            return _anywhere(text)
    raise TypeError(f"{type(query).__name__} is a condition on a part, not on a node")


def _own(name: str) -> ColumnElement[Any]:
    """Return a column of the node as it is compared: texts in lower case, booleans as numbers."""
    column = schema.nodes.c[name]
    if isinstance(column.type, Boolean):
        return case((column, 1.0), else_=0.0)
    return func.lower(column) if isinstance(column.type, String) else column


def _anywhere(text: str) -> ColumnElement[bool]:
    """Return whether the text is in one of the node's or in one of any of its parts."""
    table, node = schema.facts.c, schema.nodes.c
    within = f"%{text.translate(_EXACT)}%"
    own = [func.lower(func.coalesce(node[name], "")).like(within, escape=_ESCAPE) for name in expressions.WORDS]
    parts = [table[name].like(within, escape=_ESCAPE) for name in expressions.TEXTS]
    begins = node.uuid.like(f"{text.translate(_EXACT)}%", escape=_ESCAPE)
    return or_(begins, *own, exists().where(and_(table.node == node.uuid, or_(*parts))))


def _parts(some: expressions.Some) -> ColumnElement[bool]:
    """Return which of the facts are such parts of the node at hand."""
    table = schema.facts.c
    mine = and_(table.node == schema.nodes.c.uuid, table.kind == some.kind)
    return mine if some.of is None else and_(mine, _holds(some.of, lambda name: table[name]))


def _holds(query: expressions.Query, column_of: Callable[[str], ColumnElement[Any]]) -> ColumnElement[bool]:
    match query:
        case expressions.Not(of):
            return not_(_holds(of, column_of))
        case expressions.All(of):
            return and_(*(_holds(one, column_of) for one in of))
        case expressions.Any(of):
            return or_(*(_holds(one, column_of) for one in of))
        case expressions.Some() | expressions.Count() | expressions.Own() | expressions.Word():
            raise TypeError("parts have no parts")
    column = column_of(query.column)
    known: ColumnElement[bool] = column.is_not(None)
    match query:
        case expressions.Number(_, op, value):
            return and_(known, COMPARE[op](column, value))  # type: ignore[arg-type]
        case expressions.Text(_, values, negated):
            listed = column.in_(values)
            return and_(known, not_(listed) if negated else listed)
        case expressions.Glob(_, pattern):
            return and_(known, column.like(pattern.translate(_LIKE), escape=_ESCAPE))
        case expressions.Known():
            return known
