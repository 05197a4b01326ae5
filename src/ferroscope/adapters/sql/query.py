"""A page of a list as SQL: equality filters, a stable order, and keyset paging by marker."""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Column, ColumnElement, Connection, Select, and_, or_, select

from ferroscope.adapters.sql.rows import Mapper
from ferroscope.ports.errors import NotFoundError
from ferroscope.ports.store import Query


def page(connection: Connection, mapper: Mapper[Any], query: Query, *, key: str = "uuid") -> Select[Any]:
    """Return the SELECT of the mapper's columns for ``query``; ``key`` is the unique column that breaks ties.

    Raises ``NotFoundError`` for an unknown marker. NULLs sort first, on every database.
    """
    table = mapper.columns[0].table
    statement = select(*mapper.columns)
    for name, value in query.filters.items():
        statement = statement.where(_matches(table.c[name], value))
    sort, unique = table.c[query.sort_key], table.c[key]
    for name, value in query.before.items():
        statement = statement.where(table.c[name] < value)
    if query.marker is not None:
        row = connection.execute(select(sort, unique).where(table.c.uuid == query.marker)).first()
        if row is None:
            raise NotFoundError(mapper.struct.__name__.lower(), query.marker)
        statement = statement.where(_after(sort, unique, row, descending=query.descending))
    for column in dict.fromkeys((_null_rank(sort), sort, unique)):
        statement = statement.order_by(column.desc() if query.descending else column.asc())
    return statement.limit(query.limit) if query.limit is not None else statement


def _matches(column: Column[Any], value: Any) -> ColumnElement[bool]:
    clause = column.in_(value) if isinstance(value, tuple) else column == value
    return cast("ColumnElement[bool]", clause)


def _null_rank(column: Column[Any]) -> ColumnElement[Any]:
    return column.is_not(None) if column.nullable else column


def _after(sort: Column[Any], unique: Column[Any], row: Any, *, descending: bool) -> ColumnElement[bool]:
    value, ident = row
    beyond: ColumnElement[bool] = unique < ident if descending else unique > ident
    if sort is unique:
        return beyond
    if value is None:
        later: ColumnElement[bool] = sort.is_not(None)
        return and_(sort.is_(None), beyond) if descending else or_(later, and_(sort.is_(None), beyond))
    further: ColumnElement[bool] = sort < value if descending else sort > value
    same = and_(sort == value, beyond)
    return or_(further, same, sort.is_(None)) if descending else or_(further, same)
