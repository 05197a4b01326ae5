"""Sorted lists of all matching nodes, as UUIDs: a page can show their number and any part of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import ColumnElement, Double, String, func, literal, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.contracts.store import HARDWARE
from ferroscope.db import mapping, schema
from ferroscope.db.search import build_statements
from ferroscope.db.session import Repository
from ferroscope.hardware import expressions
from ferroscope_client.core.values import natural

_n = schema.nodes.c


class _Value(FunctionElement[Any]):
    """A value of the summary of the hardware, from its JSON: text or a number; NULL if there is none."""

    inherit_cache = True

    def __init__(self, name: str) -> None:
        super().__init__(_n.hardware, literal(f"$.{name}"), literal(name))


class _TextOrder(_Value):
    type = String()
    inherit_cache = True


class _NumberOrder(_Value):
    type = Double()
    inherit_cache = True


@compiles(_TextOrder)
@compiles(_NumberOrder)
def _on_sqlite_and_mariadb(element: _Value, compiler: SQLCompiler, **options: Any) -> str:
    document, path, _ = (compiler.process(clause, **options) for clause in element.clauses)
    if compiler.dialect.name == "sqlite":
        return f"json_extract({document}, {path})"
    value = f"JSON_VALUE({document}, {path})"
    return f"CAST({value} AS DOUBLE)" if isinstance(element, _NumberOrder) else value


@compiles(_TextOrder, "postgresql")
@compiles(_NumberOrder, "postgresql")
def _on_postgresql(element: _Value, compiler: SQLCompiler, **options: Any) -> str:
    document, _, name = (compiler.process(clause, **options) for clause in element.clauses)
    value = f"(CAST({document} AS json) ->> CAST({name} AS text))"
    return f"CAST({value} AS double precision)" if isinstance(element, _NumberOrder) else value


class Ranking(Repository):
    """All nodes that match, in an order; ``contracts.store.Query`` has pages of them instead."""

    def uuids(
        self,
        query: expressions.Query | None = None,
        *,
        sort: str = "name",
        descending: bool = False,
        project: str | None = None,
    ) -> Sequence[str]:
        """Return the UUIDs of the nodes that match, by one of ``SORTS``, then by name; nodes without a value are last.

        ``project`` as in ``contracts.store.Query``.
        """
        key = literal(0) if sort == "name" else _key(sort)
        statement, parameters = select(key.label("key"), _n.name, _n.uuid), {}
        if project is not None:
            statement = statement.where(mapping.in_project(schema.nodes))
            parameters = mapping.of_project(project)
        if sort != "name":
            statement = statement.order_by(key.is_(None), key.desc() if descending else key)
        statements = (
            [statement] if query is None else build_statements(self._tx, statement, query, sorts=sort != "name")
        )
        rows = [row for statement in statements for row in self._tx.connection.execute(statement, parameters)]
        backwards = descending and sort == "name"
        return [row[2] for _, alike in groupby(rows, _BY_KEY) for row in _by_name(alike, backwards=backwards)]


_BY_KEY: Final = itemgetter(0)


def _by_name(rows: Iterable[Any], *, backwards: bool) -> list[Any]:
    """Return the rows as people sort names, node2 before node10; databases cannot, or each in its own way.

    All that match are read in any case, so an index would save nothing.
    """
    listed = list(rows)
    if len(listed) == 1:
        return listed
    unnamed = sorted((row for row in listed if row[1] is None), key=itemgetter(2))
    return sorted((row for row in listed if row[1] is not None), key=_natural, reverse=backwards) + unnamed


def _natural(row: Any) -> str:
    return natural(row[1])


def _key(sort: str) -> ColumnElement[Any]:
    if sort == "model":
        words = (func.coalesce(_TextOrder(name), "") for name in ("vendor", "product"))
        return func.nullif(func.lower(next(words).concat(" ").concat(next(words))), " ")
    if sort in HARDWARE:
        return _NumberOrder(sort) if HARDWARE[sort] else func.lower(_TextOrder(sort))
    column: ColumnElement[Any] = _n[sort]
    return column
