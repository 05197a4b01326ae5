"""Structs and rows: inserting several rows, converting both ways, and reading a list page by page.

A list has equality filters, a stable order, and keyset pagination by marker. Its statement is built once for each shape
of a query (which filters, what order) and reused: values are always parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache, reduce
from itertools import chain
from typing import Any, ClassVar, Final, Generic, TypeVar, cast, get_type_hints

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Double,
    Insert,
    Integer,
    LargeBinary,
    Select,
    String,
    Table,
    Text,
    and_,
    bindparam,
    false,
    func,
    insert,
    literal,
    literal_column,
    or_,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Later, Query
from ferroscope.db import schema
from ferroscope.db.executor import NOW
from ferroscope.db.session import Session
from ferroscope_client.core import json_safety

# SQL that each database spells in its own way.

T = TypeVar("T")


class _Spelled(FunctionElement[T]):
    """A function with its text by dialect, or else ``""``; ``{}`` is where its arguments are."""

    inherit_cache = True
    texts: ClassVar[Mapping[str, str]]


@compiles(_Spelled)
def _text(element: _Spelled[Any], compiler: SQLCompiler, **options: Any) -> str:
    text = element.texts.get(compiler.dialect.name) or element.texts[""]
    return text.format(*(compiler.process(part, **options) for part in element.clauses)) if "{}" in text else text


class db_now(_Spelled[float]):  # noqa: N801  # named like an SQL function
    """The database's clock in seconds since the epoch; it advances within a transaction."""

    type = Double()
    inherit_cache = True
    texts = NOW


class Whole(_Spelled[int]):
    """The whole part of a positive number; a cast to an integer is rounded by servers, and not by SQLite."""

    type = Integer()
    inherit_cache = True
    texts: ClassVar = {"": "floor({})", "sqlite": "CAST({} AS INTEGER)"}  # not every SQLite was built with floor()


class Bytes(_Spelled[int]):
    """The length of a text in bytes; NULL if it is NULL. A server returns it without reading a long text."""

    type = Integer()
    inherit_cache = True
    # octet_length is newer than the SQLite of Debian 12, and its length() of a text counts characters.
    texts: ClassVar = {"": "octet_length({})", "sqlite": "length(CAST({} AS BLOB))"}


class Attribute(_Spelled[str]):
    """What to sort by for a value of a document, by its name; NULL if it is missing."""

    type = String()
    inherit_cache = True
    texts: ClassVar = {
        "": "JSON_UNQUOTE(JSON_EXTRACT({}, CONCAT('$.', {})))",
        # It refuses a document with the character 0 anywhere.
        "postgresql": r"json_extract_path_text(CAST(replace({}, '\u0000', '\u0020') AS JSON), {})",
        "sqlite": "json_extract({}, '$.' || {})",
    }


@cache
def upsert(family: str, table: Table) -> Any:
    """Return the INSERT that, if the primary key already exists, replaces the other columns instead."""
    others = [column.name for column in table.columns if not column.primary_key]
    if family in ("mysql", "mariadb"):
        from sqlalchemy.dialects import mysql

        statement = mysql.insert(table)
        return statement.on_duplicate_key_update({name: statement.inserted[name] for name in others})
    if family == "postgresql":
        from sqlalchemy.dialects.postgresql import insert
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment]
    into = insert(table)
    return into.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_={name: into.excluded[name] for name in others}
    )


# Multi-row INSERT, because the drivers' ``executemany`` sends a statement for each row. The number of rows in a
# statement is a power of two, so that few different statements are compiled and prepared.

# The maximum number of rows in one statement.
_MAX_ROWS_AT_ONCE: Final = 32


@lru_cache(maxsize=128)
def _insert(table: Table, columns: tuple[str, ...], rows: int) -> tuple[Insert, tuple[str, ...]]:
    values: list[dict[str, Any]] = [{column: bindparam(f"{column}_{row}") for column in columns} for row in range(rows)]
    return insert(table).values(values), tuple(f"{column}_{row}" for row in range(rows) for column in columns)


def add(tx: Session, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Insert ``rows``; each has the values of ``columns``, in their order."""
    start, size, names = 0, _MAX_ROWS_AT_ONCE, tuple(columns)
    while start < len(rows):
        while size > len(rows) - start:
            size //= 2
        statement, parameters = _insert(table, names, size)
        values = chain.from_iterable(rows[start : start + size])
        tx.ask(statement, dict(zip(parameters, values, strict=True)))
        start += size


# Conversion of structs to rows and back: documents are stored as JSON text, enums as their values, and booleans as
# numbers if the database has no boolean type.
#
# An enum value that this release does not know was written by a newer one: it is returned as plain text, so that one
# such row does not make a whole list fail.
#
# Columns have the names of their fields. Rows are read by position, in the order of ``columns``.

S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder()
_decode = json_safety.decode_own


class Mapper(Generic[S]):
    """Maps one struct type to the rows of its table; built once per type, and for each choice of ``fields``."""

    def __init__(self, struct: type[S], table: Table, fields: Sequence[str] = ()) -> None:
        self.struct = struct
        self.fields = tuple(fields) or struct.__struct_fields__
        self.columns: tuple[Column[Any], ...] = tuple(table.c[name] for name in self.fields)
        hints = get_type_hints(struct)
        kinds = [hints[name] for name in self.fields]
        self._documents = [i for i, kind in enumerate(kinds) if getattr(kind, "__origin__", None) in (dict, list)]
        self._document_fields = [self.fields[i] for i in self._documents]
        self._booleans = [i for i, kind in enumerate(kinds) if kind is bool]
        self._enums = [(i, {str(member): member for member in kind}) for i, kind in enumerate(kinds) if _is_enum(kind)]

    def to_row(self, item: S) -> dict[str, Any]:
        """Return the column values of ``item`` by name."""
        row = msgspec.structs.asdict(item)
        for name in self._document_fields:
            row[name] = _encoder.encode(row[name]).decode()
        return row

    def from_row(self, row: Any) -> S:
        """Return the struct for a row of ``columns``."""
        values = list(row)
        for index in self._documents:
            text = values[index]
            values[index] = {} if text in ("{}", None) else _decode(text)
        for index in self._booleans:
            values[index] = bool(values[index])
        for index, members in self._enums:
            values[index] = members.get(values[index], values[index])
        return self.struct(**dict(zip(self.fields, values, strict=True)))


@lru_cache(maxsize=256)
def narrowed(mapper: Mapper[Any], fields: frozenset[str] | None) -> Mapper[Any]:
    """Return the mapper that reads only these fields, None for all; the others have their defaults."""
    if fields is None:
        return mapper
    needed = {field.name for field in msgspec.structs.fields(mapper.struct) if field.required}
    chosen = [name for name in mapper.fields if name in fields | needed]
    return Mapper(mapper.struct, mapper.columns[0].table, chosen)


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, str) and kind is not str


V = TypeVar("V")

# A filter's field and number of values: None for SQL's NULL, -1 for a single value, else the length of a tuple.
_Filter = tuple[str, int | None]


class _Shape(msgspec.Struct, frozen=True):
    """All properties of a query that its SQL depends on; ``marker``: whether the marker's sort value is NULL."""

    filters: tuple[_Filter, ...]
    before: tuple[str, ...]
    project: bool
    attributes: tuple[str, ...]
    present: tuple[str, ...]
    marker: bool | None
    sort_key: str
    descending: bool
    limited: bool


def page(tx: Session, mapper: Mapper[S], query: Query, *, key: str = "uuid") -> Sequence[S]:
    """Return the items of ``query``; ``key`` is the unique column that breaks ties.

    Raises ``NotFoundError`` for an unknown marker. NULLs sort first, on every database.
    """
    return page_later(tx, mapper, query, key=key).get()


def page_later(tx: Session, mapper: Mapper[S], query: Query, *, key: str = "uuid") -> Later[Sequence[S]]:
    """Buffer the statement for the items of ``query``; see ``page``."""
    shape, parameters = _shape(tx, mapper, query, key)
    pending = tx.ask(_select(mapper, shape, key), parameters)
    return Later(lambda: [mapper.from_row(row) for row in pending.answer()])


def sizes(tx: Session, mapper: Mapper[Any], query: Query, *, key: str = "uuid") -> Sequence[int]:
    """Return the bytes of the documents and long texts of each item of ``query``, which are not read; see ``page``."""
    shape, parameters = _shape(tx, mapper, query, key)
    return [int(row[0]) for row in tx.run(_select(mapper, shape, key, sizes=True), parameters)]


def _shape(tx: Session, mapper: Mapper[Any], query: Query, key: str) -> tuple[_Shape, dict[str, Any]]:
    """Return what the SQL of the query depends on, and its parameters."""
    parameters: dict[str, Any] = {}
    filters = tuple(_enter(parameters, name, value) for name, value in query.filters.items())
    for name, value in query.before.items():
        parameters[f"before_{name}"] = value
    marker = None
    if query.marker is not None:
        # The journal has no index of its UUIDs, but of its nodes.
        of_node = key == "id" and isinstance(query.filters.get("node"), str)
        given = {"marker": query.marker} | ({"node": query.filters["node"]} if of_node else {})
        row = tx.run(_marker(mapper, query.sort_key, key, of_node=of_node), given).first()
        if row is None:
            raise NotFoundError(mapper.struct.__name__.lower(), query.marker)
        parameters |= {f"after_{place}": value for place, value in enumerate(row) if value is not None}
        marker = row[0] is None
    if query.project is not None:
        parameters |= of_project(query.project)
    for name, text in query.attributes.items():
        parameters[f"attribute_{name}"] = _attribute_pattern(name, text)
    if query.limit is not None:
        parameters["page_limit"] = query.limit
    shape = _Shape(
        filters,
        tuple(query.before),
        query.project is not None,
        tuple(query.attributes),
        query.present,
        marker,
        query.sort_key,
        query.descending,
        limited=query.limit is not None,
    )
    return shape, parameters


def size_of(columns: Iterable[Column[Any]]) -> ColumnElement[int]:
    """Return the bytes of the documents and long texts among these columns; others are short."""
    long = [func.coalesce(Bytes(column), 0) for column in columns if _is_long(column)]
    return cast("ColumnElement[int]", reduce(operator.add, long, literal(0)))


def _is_long(column: Column[Any]) -> bool:
    return isinstance(column.type, Text | LargeBinary)


# Not every field of a node is a column, for example not the lessee: the JSON text of the others is searched for in the
# column of attributes, where the same text may be a part of something else. So a few more rows may be found.

_ESCAPE: Final = "!"
_SPECIAL: Final = str.maketrans({_ESCAPE: _ESCAPE * 2, "%": f"{_ESCAPE}%", "_": f"{_ESCAPE}_"})


def in_project(table: Table) -> ColumnElement[bool]:
    """Return the condition that a node, or the node of a port, may belong to the project of ``of_project``."""
    nodes = schema.nodes.c
    belongs = or_(nodes.owner == bindparam("project_owner"), _contains("project_lessee"))
    return belongs if table is schema.nodes else table.c.node.in_(select(nodes.uuid).where(belongs))


def of_project(project: str) -> dict[str, Any]:
    """Return the parameters for ``in_project``."""
    return {"project_owner": project, "project_lessee": _attribute_pattern("lessee", project)}


def _contains(parameter: str) -> ColumnElement[bool]:
    return schema.nodes.c.attributes.like(bindparam(parameter), escape=_ESCAPE)


def has_attribute(name: str) -> ColumnElement[bool]:
    """Return the condition that a node may have an attribute of this name."""
    return schema.nodes.c.attributes.like(f'%"{name.translate(_SPECIAL)}":%', escape=_ESCAPE)


def _attribute_pattern(name: str, value: str) -> str:
    """Return the pattern for an attribute of a node with this value."""
    written = _encoder.encode({name: value}).decode()[1:-1]
    return f"%{written.translate(_SPECIAL)}%"


def one_of(column: Column[Any], name: str, number: int) -> ColumnElement[bool]:
    """Return ``column IN (...)`` for the parameters ``name_0`` to ``name_{number-1}``."""
    if not number:
        return false()
    return cast("ColumnElement[bool]", column.in_([bindparam(f"{name}_{index}") for index in range(number)]))


def padded(values: Sequence[V]) -> tuple[V, ...]:
    """Return the values, the last one repeated so that their number is a power of two.

    For an ``IN`` whose length clients choose. Its statement then has ten shapes instead of five hundred; each shape is
    compiled and cached, here and on the server.
    """
    if not values:
        return ()
    missing = (1 << (len(values) - 1).bit_length()) - len(values)
    return (*values, *[values[-1]] * missing)


def several(name: str, values: tuple[Any, ...]) -> dict[str, Any]:
    """Return the parameters for ``one_of``."""
    return {f"{name}_{index}": value for index, value in enumerate(values)}


def _enter(parameters: dict[str, Any], name: str, value: Any) -> _Filter:
    if value is None:
        return name, None
    if isinstance(value, tuple):
        value = padded(value)
        parameters.update(several(f"is_{name}", value))
        return name, len(value)
    parameters[f"is_{name}"] = value
    return name, -1


@lru_cache(maxsize=512)
def _marker(mapper: Mapper[Any], sort_key: str, key: str, *, of_node: bool) -> Select[Any]:
    table = mapper.columns[0].table
    labeled = [column.label(f"after_{place}") for place, column in enumerate(_order(table, sort_key, key))]
    statement = select(*labeled).where(table.c.uuid == bindparam("marker"))
    return statement.where(table.c.node == bindparam("node")) if of_node else statement


def _order(table: Table, sort_key: str, key: str) -> list[Any]:
    """Return what to sort by: equal values come in the order of creation, and then of the unique ``key``."""
    sort = table.c[sort_key] if sort_key in table.c else Attribute(table.c.attributes, literal_column(f"'{sort_key}'"))
    ties = [table.c[name] for name in ("created_at", key) if name in table.c and name != sort_key]
    return [sort] if sort_key == key else [sort, *ties[-1:]] if key != "uuid" else [sort, *ties]


@lru_cache(maxsize=512)
def _select(mapper: Mapper[Any], shape: _Shape, key: str, *, sizes: bool = False) -> Select[Any]:
    table = mapper.columns[0].table
    statement = select(size_of(mapper.columns)) if sizes else select(*mapper.columns)
    for name, number in shape.filters:
        statement = statement.where(_matches(table.c[name], name, number))
    for name in shape.before:
        statement = statement.where(table.c[name] < bindparam(f"before_{name}"))
    if shape.project:
        statement = statement.where(in_project(table))
    for name in shape.attributes:
        statement = statement.where(_contains(f"attribute_{name}"))
    for name in shape.present:
        statement = statement.where(has_attribute(name))
    sort, *ties = _order(table, shape.sort_key, key)
    if shape.marker is not None:
        statement = statement.where(_after(sort, ties, null=shape.marker, descending=shape.descending))
    # What is before something is not NULL, and an index has its order.
    rank = [sort.is_not(None)] if _is_nullable(sort) and shape.sort_key not in shape.before else []
    for column in (*rank, sort, *ties):
        statement = statement.order_by(column.desc() if shape.descending else column.asc())
    return statement.limit(bindparam("page_limit")) if shape.limited else statement


def _matches(column: Column[Any], name: str, number: int | None) -> ColumnElement[bool]:
    if number is None:
        return column.is_(None)
    if number < 0:
        return column == bindparam(f"is_{name}")
    return one_of(column, f"is_{name}", number)


def _is_nullable(sort: ColumnElement[Any]) -> bool:
    return not isinstance(sort, Column) or bool(sort.nullable)


def _after(sort: ColumnElement[Any], ties: Sequence[Any], *, null: bool, descending: bool) -> ColumnElement[bool]:
    # Keyset pagination: the rows after the marker in the order (sort, *ties). A comparison with NULL is never true, so
    # NULLs, which sort first, need their own conditions; ``null``: the marker's sort value is NULL.
    compare = operator.lt if descending else operator.gt
    beyond: Any = false()
    for place, column in reversed(list(enumerate(ties, 1))):
        value: Any = bindparam(f"after_{place}")
        further = compare(column, value)
        beyond = further if column is ties[-1] else or_(further, and_(column == value, beyond))
    if null:
        return and_(sort.is_(None), beyond) if descending else or_(sort.is_not(None), and_(sort.is_(None), beyond))
    value = bindparam("after_0")
    later: ColumnElement[bool] = compare(sort, value)
    if ties:
        # Only because of the first condition, every database begins to read the index in the middle.
        from_there = operator.le if descending else operator.ge
        later = and_(from_there(sort, value), or_(later, beyond))
    return or_(later, sort.is_(None)) if descending and _is_nullable(sort) else later
