"""The search index. It is written in few statements, as every inspection writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Boolean,
    ColumnElement,
    Select,
    String,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    literal,
    literal_column,
    not_,
    or_,
    select,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from ferroscope.contracts.store import SearchMatch, SharedMac
from ferroscope.db import mapping, schema, trigrams
from ferroscope.db.counted_ahead import CountedAhead
from ferroscope.db.session import Repository, Session
from ferroscope.hardware import expressions
from ferroscope.hardware.expressions import COMPARE
from ferroscope.hardware.search_index import MAX_TEXT, IndexRow
from ferroscope_client.core import json_safety
from ferroscope_client.core.mac_addresses import PLACEHOLDER_MACS
from ferroscope_client.hardware.search_fields import KINDS, LABEL

# A search query as an SQL condition on a row of ``nodes``; ``hardware.expressions`` defines its meaning.
#
# Every comparison also requires that the column is not NULL: for a missing value it is false instead of NULL, and its
# negation is true.

_ESCAPE: Final = "!"
_LIKE: Final = str.maketrans({_ESCAPE: _ESCAPE * 2, "%": f"{_ESCAPE}%", "_": f"{_ESCAPE}_", "*": "%", "?": "_"})


def condition(query: expressions.Query) -> ColumnElement[bool]:
    """Return the SQL condition for the query on a node."""
    match query:
        case expressions.Not(of):
            return not_(condition(of))
        case expressions.All(of):
            return and_(*(condition(part) for part in of))
        case expressions.Any(of):
            return or_(*(condition(part) for part in of))
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


class _LabelValue(FunctionElement[str]):
    """The value of a label, from the JSON text of all labels in lower case; NULL if there is none."""

    type = String()
    inherit_cache = True

    def __init__(self, document: ColumnElement[str], key: str) -> None:
        super().__init__(document, literal(f'$."{key}"'), literal(key))


@compiles(_LabelValue)
def _on_sqlite_and_mariadb(element: _LabelValue, compiler: SQLCompiler, **options: Any) -> str:
    document, path, _ = (compiler.process(clause, **options) for clause in element.clauses)
    function = "json_extract" if compiler.dialect.name == "sqlite" else "JSON_VALUE"
    return f"{function}({document}, {path})"


@compiles(_LabelValue, "postgresql")
def _on_postgresql(element: _LabelValue, compiler: SQLCompiler, **options: Any) -> str:
    document, _, key = (compiler.process(clause, **options) for clause in element.clauses)
    return f"(CAST({document} AS json) ->> CAST({key} AS text))"


def _own(name: str) -> ColumnElement[Any]:
    """Return a column of the node for comparison: text in lower case, booleans as numbers."""
    kind, dot, key = name.partition(".")
    if dot and kind == LABEL:
        return _LabelValue(func.lower(schema.nodes.c.labels), key)
    if name == "uuid":
        return schema.nodes.c.uuid  # in lower case already; its index is used
    if name not in schema.nodes.c:
        return case((mapping.has_attribute(name), 1.0), else_=0.0)
    column = schema.nodes.c[name]
    if isinstance(column.type, Boolean):
        return case((column, 1.0), else_=0.0)
    return func.lower(column) if isinstance(column.type, String) else column


def _anywhere(text: str) -> ColumnElement[bool]:
    """Match text in the node's own fields, its BMC's addresses or any of its parts; a UUID matches by prefix."""
    table, node, bmc = schema.search_index.c, schema.nodes.c, schema.bmc_addresses.c
    own = (func.lower(func.coalesce(node[name], "")).contains(text, autoescape=True) for name in expressions.WORDS)
    has_text = or_(*(table[name].contains(text, autoescape=True) for name in expressions.TEXTS))
    return or_(
        node.uuid.startswith(text, autoescape=True),
        *own,
        exists().where(and_(bmc.node == node.uuid, bmc.address.contains(text, autoescape=True))),
        exists().where(and_(table.node == node.uuid, table.kind == _WORDS, has_text)),
    )


def _parts(some: expressions.Some) -> ColumnElement[bool]:
    """Return the condition that an index row is a matching part of the current node."""
    table = schema.search_index.c
    mine = and_(table.node == schema.nodes.c.uuid, table.kind == some.kind)
    return mine if some.of is None else and_(mine, _holds(some.of, lambda name: table[name]))


def _holds(query: expressions.Query, column_of: Callable[[str], ColumnElement[Any]]) -> ColumnElement[bool]:
    match query:
        case expressions.Not(of):
            return not_(_holds(of, column_of))
        case expressions.All(of):
            return and_(*(_holds(part, column_of) for part in of))
        case expressions.Any(of):
            return or_(*(_holds(part, column_of) for part in of))
        case expressions.Some() | expressions.Count() | expressions.Own() | expressions.Word():
            raise TypeError("parts have no parts")
    column = column_of(query.column)
    has_value: ColumnElement[bool] = column.is_not(None)
    match query:
        case expressions.Number(_, op, value):
            return and_(has_value, COMPARE[op](column, value))  # type: ignore[arg-type]
        case expressions.Text(_, values, negated):
            listed = column.in_(values)
            return and_(has_value, not_(listed) if negated else listed)
        case expressions.Glob(_, pattern):
            return and_(has_value, column.like(pattern.translate(_LIKE), escape=_ESCAPE))
        case expressions.Known():
            return has_value


_f, _n = schema.search_index.c, schema.nodes.c
_NAMES: Final = IndexRow.__struct_fields__
# Rows of this kind have each text of a node's parts once, so that a bare word is looked for in few rows
# instead of in some thirty of each node.
_WORDS: Final = "words"


def _words(rows: Sequence[IndexRow]) -> list[tuple[Any, ...]]:
    """Return the rows with all texts, one text a line, as many in each column as fit."""
    texts = dict.fromkeys(text for row in rows for name in expressions.TEXTS if (text := getattr(row, name)))
    columns: list[str] = []
    for text in texts:
        if columns and len(columns[-1]) + 1 + len(text) <= MAX_TEXT:
            columns[-1] += f"\n{text}"
        else:
            columns.append(text)
    width = len(expressions.TEXTS)
    filled = columns + [None] * (-len(columns) % width)
    empty = [None] * (len(_NAMES) - 2 - width)
    return [(_WORDS, at // width, *filled[at : at + width], *empty) for at in range(0, len(filled), width)]


_mac = _f[KINDS["nic"]["mac"].column]
# The kind is a literal, because the index of MACs has the rows of NICs only.
_SHARED_MACS = (
    select(_mac, func.count(), func.min(_f.node), func.max(_f.node))
    .where(
        _f.kind == literal_column("'nic'"),
        _mac.is_not(None),
        *(_mac != literal_column(f"'{mac}'") for mac in sorted(PLACEHOLDER_MACS)),
    )
    .group_by(_mac)
    .having(func.min(_f.node) < func.max(_f.node))
    .order_by(func.count().desc(), _mac)
    .limit(bindparam("limit"))
)
_serial = _f[KINDS["node"]["serial"].column]
# The smallest groups come first: a serial number that many machines have identifies none of them.
_SHARED_SERIALS = (
    select(func.min(_f.node), func.max(_f.node))
    .where(_f.kind == literal_column("'node'"), _serial.is_not(None))
    .group_by(_serial)
    .having(func.min(_f.node) < func.max(_f.node))
    .order_by(func.count(), _serial)
    .limit(bindparam("limit"))
)
_WINDOW_NODES: Final = 5000
_LAST_OF_WINDOW = (
    select(_n.uuid).where(_n.uuid > bindparam("after")).order_by(_n.uuid).limit(1).offset(_WINDOW_NODES - 1)
)


def windows(tx: Session, after: str = "") -> Iterator[ColumnElement[bool]]:
    """Yield the conditions of windows that cover all nodes after this UUID, each of a few thousand."""
    while (last := tx.run(_LAST_OF_WINDOW, {"after": after}).first()) is not None:
        yield and_(_n.uuid > after, _n.uuid <= last[0])
        after = last[0]
    yield _n.uuid > after


def build_statements(
    tx: Session, statement: Select[Any], query: expressions.Query, after: str = "", *, sorts: bool = False
) -> Iterator[Select[Any]]:
    """Yield the statement for the nodes after this UUID that match: once if an index finds them, or if it ``sorts``.

    Otherwise each is for a window of all nodes, in their order. So none is cancelled for its time, however large the
    fleet is.
    """
    query = _look_up(tx, query)
    is_whole = sorts or _is_listed(query)
    statement = statement.where(condition(query))
    if expressions.about_hardware(query):
        statement = statement.where(_n.search_digest.is_not(None))
    wanted = [_n.uuid > after] if is_whole else windows(tx, after)
    yield from (statement.where(window) for window in wanted)


def _look_up(tx: Session, query: expressions.Query) -> expressions.Query:
    """Return the query with the UUIDs of the nodes in place of each word that an index has."""
    match query:
        case expressions.Not(of):
            return expressions.Not(_look_up(tx, of))
        case expressions.All(of):
            return expressions.All(tuple(_look_up(tx, part) for part in of))
        case expressions.Any(of):
            return expressions.Any(tuple(_look_up(tx, part) for part in of))
        case expressions.Word(word):
            nodes = trigrams.find_nodes(tx, word)
            return query if nodes is None else expressions.Own(expressions.Text("uuid", tuple(nodes)))
    return query


def _is_listed(query: expressions.Query) -> bool:
    """Return whether all nodes that match are among listed ones."""
    match query:
        case expressions.All(of):
            return any(map(_is_listed, of))
        case expressions.Any(of):
            return all(map(_is_listed, of))
        case expressions.Own(expressions.Text("uuid", _, False)):
            return True
    return False


_DELETE = delete(schema.search_index).where(_f.node == bindparam("_node"))
_SELECT = (
    select(*(_f[name] for name in _NAMES))
    .where(_f.node == bindparam("node"), _f.kind != _WORDS)
    .order_by(_f.kind, _f.position)
)
# On PostgreSQL all rows are sent as one JSON parameter. Hundreds of parameters, whose types vary between machines, take
# the driver a third of a millisecond longer, and the server plans such a statement each time.
_TYPES: Final = {"p": "integer", "n": "double precision", "k": "varchar", "t": "varchar"}
_INSERT_JSON = text(
    f"INSERT INTO search_index (node, {', '.join(_NAMES)}) SELECT :node, "  # noqa: S608  # constant names
    + ", ".join(f"CAST(row ->> {place} AS {_TYPES[name[0]]})" for place, name in enumerate(_NAMES))
    + " FROM json_array_elements(CAST(:rows AS json)) AS rows (row)"
)


_MAX_SHARED_IDENTITIES: Final = 256


class SharedIdentities(msgspec.Struct, frozen=True, kw_only=True):
    """MAC addresses of several nodes, those of most NICs first; two nodes of each serial number that several have."""

    macs: list[SharedMac]
    pairs_with_one_serial: list[tuple[str, str]]


class SearchIndex(Repository):
    """The index that searches use: rows for each node, written with the results that they are derived from."""

    def replace(self, node: str, rows: Sequence[IndexRow], *, had: bool) -> None:
        """Replace the node's rows; ``had``: whether it may already have any."""
        if had:
            self._tx.ask(_DELETE, {"_node": node})
        dialect = self._tx.dialect
        if rows and dialect.name == "postgresql" and dialect.driver == "psycopg":
            self._tx.ask(_INSERT_JSON, {"node": node, "rows": msgspec.json.encode([*rows, *_words(rows)]).decode()})
            return
        stored = [*map(msgspec.structs.astuple, rows), *_words(rows)]
        mapping.add(self._tx, schema.search_index, ("node", *_NAMES), [(node, *row) for row in stored])

    def of(self, node: str) -> Sequence[IndexRow]:
        """Return the node's rows, by kind and position."""
        return [IndexRow(*row) for row in self._tx.run(_SELECT, {"node": node})]

    def search(
        self, query: expressions.Query, limit: int, *, after: str = "", project: str | None = None
    ) -> Sequence[SearchMatch]:
        """Return the nodes after ``after`` that match the query, by UUID; ``project`` as in ``contracts.store.Query``.

        ``hardware.expressions.matches`` defines the meaning of a query for every adapter. If a query is
        ``about_hardware``, nodes without rows do not match.
        """
        statement = select(_n.uuid, _n.name, _n.provision_state, _n.maintenance, _n.hardware)
        parameters = {}
        if project is not None:
            statement = statement.where(mapping.in_project(schema.nodes))
            parameters = mapping.of_project(project)
        matches: list[SearchMatch] = []
        for part in build_statements(self._tx, statement, query, after):
            page = part.order_by(_n.uuid).limit(limit - len(matches))
            matches += [
                SearchMatch(uuid, name, state, bool(maintenance), json_safety.decode_own(hardware or "{}"))
                for uuid, name, state, maintenance, hardware in self._tx.connection.execute(page, parameters)
            ]
            if len(matches) >= limit:
                break
        return matches

    def with_serials(self, serials: Sequence[str]) -> dict[str, list[str]]:
        """Return the nodes by serial number, in lower case; numbers that no machine has are left out."""
        # The kind is a literal, because the index of serial numbers has the rows of machines only.
        of_machines = _f.kind == literal_column("'node'")
        statement = select(_serial, _f.node).where(of_machines, _serial.in_(list(serials))).order_by(_f.node)
        by_serial: dict[str, list[str]] = {}
        for folded_serial, node in self._tx.connection.execute(statement):
            by_serial.setdefault(folded_serial, []).append(node)
        return by_serial

    def shared_identities(self) -> SharedIdentities:
        """Return what several nodes' machines reported; of a large fleet, as it was some minutes ago."""
        return CountedAhead(self._tx).get("identities", SharedIdentities) or self.find_shared_identities()

    def find_shared_identities(self) -> SharedIdentities:
        """Look for what several nodes' machines reported, in all that they reported."""
        most = {"limit": _MAX_SHARED_IDENTITIES}
        return SharedIdentities(
            macs=[SharedMac(mac, nics, tuple(nodes)) for mac, nics, *nodes in self._tx.run(_SHARED_MACS, most)],
            pairs_with_one_serial=[tuple(nodes) for nodes in self._tx.run(_SHARED_SERIALS, most)],
        )

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[IndexRow]]:
        """Return the rows of these kinds, for each of these nodes that has any."""
        statement = (
            select(_f.node, *(_f[name] for name in _NAMES))
            .where(_f.node.in_(list(nodes)), _f.kind.in_(list(kinds)))
            .order_by(_f.node, _f.kind, _f.position)
        )
        by_node: dict[str, list[IndexRow]] = {}
        for node, *row in self._tx.connection.execute(statement):
            by_node.setdefault(node, []).append(IndexRow(*row))
        return by_node
