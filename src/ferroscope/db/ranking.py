"""Lists of nodes in any order: all that match, as UUIDs, so that a page says how many there are and shows any part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Double, String, and_, func, literal, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.contracts.store import HARDWARE
from ferroscope.core.states import State
from ferroscope.db import mapping, schema
from ferroscope.db.search import condition
from ferroscope.db.session import Session
from ferroscope.hardware import expressions

_n, _i = schema.nodes.c, schema.inspections.c


class _Value(FunctionElement[Any]):
    """A value of the summary of the hardware, out of its JSON: text or a number; NULL if there is none."""

    inherit_cache = True

    def __init__(self, name: str) -> None:
        super().__init__(_n.hardware, literal(f"$.{name}"), literal(name))


class _Text(_Value):
    type = String()
    inherit_cache = True


class _Number(_Value):
    type = Double()
    inherit_cache = True


@compiles(_Text)
@compiles(_Number)
def _on_sqlite_and_mariadb(element: _Value, compiler: SQLCompiler, **given: Any) -> str:
    document, path, _ = (compiler.process(one, **given) for one in element.clauses)
    if compiler.dialect.name == "sqlite":
        return f"json_extract({document}, {path})"
    value = f"JSON_VALUE({document}, {path})"
    return f"CAST({value} AS DOUBLE)" if isinstance(element, _Number) else value


@compiles(_Text, "postgresql")
@compiles(_Number, "postgresql")
def _on_postgresql(element: _Value, compiler: SQLCompiler, **given: Any) -> str:
    document, _, name = (compiler.process(one, **given) for one in element.clauses)
    value = f"(CAST({document} AS json) ->> CAST({name} AS text))"
    return f"CAST({value} AS double precision)" if isinstance(element, _Number) else value


class Ranking:
    """All nodes that match, in an order; ``contracts.store.Query`` has pages of them instead."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def uuids(
        self,
        query: expressions.Query | None = None,
        *,
        reason: str = "",
        sort: str = "name",
        descending: bool = False,
        project: str | None = None,
    ) -> Sequence[str]:
        """Return the UUIDs of the nodes that match, by one of ``SORTS``; those that have no such value are last.

        ``reason``: only nodes whose last inspection failed for it. ``project`` as in ``contracts.store.Query``.
        """
        statement, parameters = select(_n.uuid), {}
        if query is not None:
            statement = statement.where(condition(query))
            if expressions.about_hardware(query):
                statement = statement.where(_n.search_digest.is_not(None))
        if reason:
            failed = schema.nodes.join(schema.inspections, _n.inspection == _i.uuid)
            statement = statement.select_from(failed).where(and_(_n.state == State.ERROR.value, _i.reason == reason))
        if project is not None:
            statement = statement.where(mapping.in_project(schema.nodes))
            parameters = mapping.of_project(project)
        key = _key(sort)
        order = (key.is_(None), key.desc() if descending else key, _n.uuid)
        return list(self._tx.connection.execute(statement.order_by(*order), parameters).scalars())


def _key(sort: str) -> ColumnElement[Any]:
    if sort == "model":
        words = (func.coalesce(_Text(name), "") for name in ("vendor", "product"))
        return func.nullif(func.lower(next(words).concat(" ").concat(next(words))), " ")
    if sort in HARDWARE:
        return _Number(sort) if HARDWARE[sort] else func.lower(_Text(sort))
    column: ColumnElement[Any] = _n[sort]
    return column
