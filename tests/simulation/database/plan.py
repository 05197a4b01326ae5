"""Trees to functions: a statement is compiled once and then run against a view of the tables.

A function of an expression takes the frame: a list of the parameters, the view, and the present row
of each table that the statement reads. NULL is None, and logic has three values, as in SQL.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from tests.simulation.database.storage import Key, Row, Table
from tests.simulation.database.text import Tree, UnknownSqlError, parse

Frame = list[Any]
Value = Callable[[Frame], Any]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "||": operator.add,
}  # fmt: skip


class View(Protocol):
    """What a statement sees and does; ``server`` has the one that locks and blocks."""

    def now(self) -> float: ...
    def rows(self, table: Table) -> Iterable[tuple[Key, Row]]: ...
    def row(self, table: Table, key: Key) -> Row | None: ...
    def lock(self, table: Table, key: Key, seen: Row, *, skip: bool) -> Row | None:
        """Lock the row and return it as it is by now: None where it is gone or is to be skipped."""


class Source:
    """A table in FROM: its slot in the frame, and the key where WHERE names it."""

    def __init__(self, table: Table, slot: int) -> None:
        self.table = table
        self.slot = slot
        self.key: Value | None = None

    def scan(self, frame: Frame) -> Iterable[tuple[Key, Row]]:
        if self.key is None:
            return frame[1].rows(self.table)  # type: ignore[no-any-return]
        key = (self.key(frame),)
        row = frame[1].row(self.table, key)
        return () if row is None else ((key, row),)


class Select:
    """Rows that match, in order, locked where the statement says so."""

    writes = False

    def __init__(self) -> None:
        self.sources: list[Source] = []
        self.where: Value | None = None
        self.items: list[Value] = []
        self.aggregate = False
        self.order: list[tuple[Value, bool]] = []
        self.limit: Value | None = None
        self.locks = False
        self.skip = False
        self.width = 0
        self.table = ""

    def matching(self, frame: Frame, depth: int = 0) -> Iterator[None]:
        """Step through the combinations of rows that match; they are in the frame meanwhile."""
        if depth == len(self.sources):
            if self.where is None or self.where(frame) is True:
                yield
            return
        source = self.sources[depth]
        for _, row in source.scan(frame):
            frame[source.slot] = row
            yield from self.matching(frame, depth + 1)

    def run(self, frame: Frame) -> list[tuple[Any, ...]]:
        if self.aggregate:
            return [tuple(item(frame) for item in self.items)]
        if self.locks:
            return self.run_locked(frame)
        limit = None if self.limit is None else self.limit(frame)
        found = []
        for _ in self.matching(frame):
            rank = [_rank(key(frame)) for key, _ in self.order]
            found.append((rank, tuple([item(frame) for item in self.items])))
            if limit is not None and not self.order and len(found) >= limit:
                break
        for place in range(len(self.order) - 1, -1, -1):
            found.sort(key=lambda entry, place=place: entry[0][place], reverse=self.order[place][1])  # type: ignore[misc]
        return [values for _, values in found[:limit]]

    def run_locked(self, frame: Frame) -> list[tuple[Any, ...]]:
        """FOR UPDATE: in order, lock what matches, look again at what changed meanwhile."""
        (source,) = self.sources
        limit = None if self.limit is None else self.limit(frame)
        found = []
        for key, row in source.scan(frame):
            frame[source.slot] = row
            if self.where is None or self.where(frame) is True:
                found.append(([_rank(value(frame)) for value, _ in self.order], key, row))
        for place in range(len(self.order) - 1, -1, -1):
            found.sort(key=lambda entry, place=place: entry[0][place], reverse=self.order[place][1])  # type: ignore[misc]
        locked = []
        for _, key, row in found:
            if limit is not None and len(locked) >= limit:
                break
            present = frame[1].lock(source.table, key, row, skip=self.skip)
            if present is None:
                continue
            frame[source.slot] = present
            if present is not row and self.where is not None and self.where(frame) is not True:
                continue
            locked.append(tuple([item(frame) for item in self.items]))
        return locked


class Change:
    """UPDATE (``changes``) or DELETE (no changes) of the rows that match."""

    writes = True

    def __init__(self, source: Source) -> None:
        self.source = source
        self.where: Value | None = None
        self.changes: list[tuple[str, Value]] | None = None
        self.returning: list[Value] = []
        self.width = 0
        self.table = source.table.name

    def affected(self, frame: Frame) -> list[tuple[Key, Row, Row | None]]:
        """Lock what matches; return key, present row and new row (None: deleted) of each."""
        source, where = self.source, self.where
        found = []
        for key, row in source.scan(frame):
            frame[source.slot] = row
            if where is None or where(frame) is True:
                found.append((key, row))
        result: list[tuple[Key, Row, Row | None]] = []
        for key, row in found:
            present = frame[1].lock(source.table, key, row, skip=False)
            if present is None:
                continue
            frame[source.slot] = present
            if present is not row and where is not None and where(frame) is not True:
                continue
            if self.changes is None:
                result.append((key, present, None))
            else:
                result.append((key, present, present | {name: value(frame) for name, value in self.changes}))
        return result


class Insert:
    """New rows; a serial key that is not given is the next number.

    ``upsert`` is what to change where the key is there already; the new row is then in ``excluded``.
    """

    writes = True

    def __init__(self, table: Table) -> None:
        self.into = table
        self.rows: list[list[tuple[str, Value]]] = []
        self.upsert: list[tuple[str, Value]] = []
        self.excluded = 0
        self.returning: list[Value] = []
        self.slot = 2
        self.width = 3
        self.table = table.name

    def new(self, frame: Frame) -> list[Row]:
        empty = dict.fromkeys(self.into.columns)
        result = []
        for values in self.rows:
            row = empty | {name: value(frame) for name, value in values}
            if self.into.serial is not None and row[self.into.serial] is None:
                self.into.last += 1
                row[self.into.serial] = self.into.last
            result.append(row)
        return result


class Control:
    """BEGIN, COMMIT and their like."""

    writes = False
    table = ""
    width = 2

    def __init__(self, tree: Tree) -> None:
        self.kind = tree[0]
        self.arguments = tree[1:]


Plan = Select | Change | Insert | Control


class Planner:
    """Compiles for one set of tables; plans hold on to the tables, so each database has its own."""

    def __init__(self, tables: dict[str, Table]) -> None:
        self._tables = tables
        self._plans: dict[str, list[Plan]] = {}

    def plans(self, sql: str) -> list[Plan]:
        found = self._plans.get(sql)
        if found is None:
            found = self._plans[sql] = [self._statement(tree) for tree in parsed(sql)]
        return found

    def _statement(self, tree: Tree) -> Plan:
        compiler = _Compiler(self._tables)
        plan: Plan
        if tree[0] == "select":
            plan = compiler.select(tree, [])
        elif tree[0] == "insert":
            plan = compiler.insert(tree)
        elif tree[0] in ("update", "delete"):
            plan = compiler.change(tree)
        else:
            return Control(tree)
        plan.width = compiler.width
        return plan


@functools.lru_cache(maxsize=1024)
def parsed(sql: str) -> list[Tree]:
    """Return the trees of ``sql``; they do not depend on a database, so every run shares them."""
    return parse(sql)


Scope = dict[str, Source]


class _Compiler:
    def __init__(self, tables: dict[str, Table]) -> None:
        self.tables = tables
        self.width = 2

    def source(self, table: str) -> Source:
        if table not in self.tables:
            raise UnknownSqlError(f"there is no table {table}")
        source = Source(self.tables[table], self.width)
        self.width += 1
        return source

    def select(self, tree: Tree, outer: list[Scope]) -> Select:
        _, items, sources, where, group, order, limit, lock, skip, distinct = tree
        if group or distinct:
            raise UnknownSqlError("GROUP BY and DISTINCT are not known")
        plan = Select()
        scope: Scope = {}
        for table, alias in sources:
            scope[alias] = self.source(table)
        plan.sources = list(scope.values())
        plan.table = sources[0][0] if sources else ""
        scopes = [*outer, scope]
        plan.where = None if where is None else self.expression(where, scopes)
        self.find_keys(plan.sources, where, scopes)
        plan.aggregate = any(item[0] == "call" and item[1] in ("count", "min", "max", "sum") for item in items)
        if plan.aggregate:
            plan.items = [self.aggregate(item, plan, scopes) for item in items]
        else:
            plan.items = [value for item in items for value in self.item(item, scopes, plan.sources)]
        plan.order = [(self.expression(value, scopes), descending) for value, descending in order]
        plan.limit = None if limit is None else self.expression(limit, scopes)
        plan.locks, plan.skip = lock, skip
        return plan

    def item(self, tree: Tree, scopes: list[Scope], sources: list[Source]) -> list[Value]:
        if tree[0] != "all":
            return [self.expression(tree, scopes)]
        return [_column(source.slot, name) for source in sources for name in source.table.columns]

    def aggregate(self, tree: Tree, plan: Select, scopes: list[Scope]) -> Value:
        _, function, (argument,) = tree
        value = (lambda _frame: 1) if argument[0] == "all" else self.expression(argument, scopes)
        combine: dict[str, Callable[[list[Any]], Any]] = {
            "count": len,
            "min": lambda values: min(values, default=None),
            "max": lambda values: max(values, default=None),
            "sum": lambda values: sum(values) if values else None,
        }

        def run(frame: Frame) -> Any:
            values = [value(frame) for _ in plan.matching(frame)]
            return combine[function]([item for item in values if item is not None])

        return run

    def insert(self, tree: Tree) -> Insert:
        _, name, columns, rows, upsert, returning = tree
        source = self.source(name)
        plan = Insert(source.table)
        plan.slot = source.slot
        for row in rows:
            plan.rows.append([(column, self.expression(value, [])) for column, value in zip(columns, row, strict=True)])
        if upsert:
            excluded = self.source(name)
            plan.excluded = excluded.slot
            scope = {name: source, "excluded": excluded}
            plan.upsert = [(column, self.expression(value, [scope])) for column, value in upsert]
        plan.returning = [value for item in returning for value in self.item(item, [{name: source}], [source])]
        return plan

    def change(self, tree: Tree) -> Change:
        name = tree[1]
        source = self.source(name)
        plan = Change(source)
        scopes = [{name: source}]
        where = tree[-2]
        plan.where = None if where is None else self.expression(where, scopes)
        self.find_keys([source], where, scopes)
        if tree[0] == "update":
            plan.changes = [(column, self.expression(value, scopes)) for column, value in tree[2]]
        plan.returning = [value for item in tree[-1] for value in self.item(item, scopes, [source])]
        return plan

    def find_keys(self, sources: list[Source], where: Tree | None, scopes: list[Scope]) -> None:
        """Find ``key = something else`` among the conditions: then the table need not be scanned."""
        parts = [] if where is None else where[1] if where[0] == "and" else [where]
        for source in sources:
            if len(source.table.key) != 1:
                continue
            for part in parts:
                if part[0] != "compare" or part[1] != "=":
                    continue
                for one, other in ((part[2], part[3]), (part[3], part[2])):
                    if one[0] != "column" or other[0] not in ("param", "constant", "scalar"):
                        continue
                    if one[2] == source.table.key[0] and self.resolve(one, scopes)[0] is source:
                        source.key = self.expression(other, scopes)

    def resolve(self, tree: Tree, scopes: list[Scope]) -> tuple[Source, str]:
        _, alias, name = tree
        for scope in reversed(scopes):
            if alias is not None:
                if alias in scope:
                    return scope[alias], name
                continue
            for source in scope.values():
                if name in source.table.columns:
                    return source, name
        raise UnknownSqlError(f"there is no column {alias}.{name} here")

    def expression(self, tree: Tree, scopes: list[Scope]) -> Value:
        return getattr(self, "_" + tree[0].replace(" ", "_"))(tree, scopes)  # type: ignore[no-any-return]

    def _param(self, tree: Tree, _scopes: list[Scope]) -> Value:
        name = tree[1]
        return lambda frame: frame[0][name]

    def _constant(self, tree: Tree, _scopes: list[Scope]) -> Value:
        value = tree[1]
        return lambda _frame: value

    def _now(self, _tree: Tree, _scopes: list[Scope]) -> Value:
        return lambda frame: frame[1].now()

    def _column(self, tree: Tree, scopes: list[Scope]) -> Value:
        source, name = self.resolve(tree, scopes)
        if name not in source.table.columns:
            raise UnknownSqlError(f"{source.table.name} has no column {name}")
        return _column(source.slot, name)

    def _compare(self, tree: Tree, scopes: list[Scope]) -> Value:
        compare = _COMPARE[tree[1]]
        left, right = self.expression(tree[2], scopes), self.expression(tree[3], scopes)

        def run(frame: Frame) -> Any:
            one, other = left(frame), right(frame)
            return None if one is None or other is None else compare(one, other)

        return run

    def _arithmetic(self, tree: Tree, scopes: list[Scope]) -> Value:
        combine = _ARITHMETIC[tree[1]]
        left, right = self.expression(tree[2], scopes), self.expression(tree[3], scopes)

        def run(frame: Frame) -> Any:
            one, other = left(frame), right(frame)
            return None if one is None or other is None else combine(one, other)

        return run

    def _and(self, tree: Tree, scopes: list[Scope]) -> Value:
        parts = [self.expression(part, scopes) for part in tree[1]]

        def run(frame: Frame) -> Any:
            unknown = False
            for part in parts:
                value = part(frame)
                if value is None:
                    unknown = True
                elif not value:
                    return False
            return None if unknown else True

        return run

    def _or(self, tree: Tree, scopes: list[Scope]) -> Value:
        parts = [self.expression(part, scopes) for part in tree[1]]

        def run(frame: Frame) -> Any:
            unknown = False
            for part in parts:
                value = part(frame)
                if value is None:
                    unknown = True
                elif value:
                    return True
            return None if unknown else False

        return run

    def _not(self, tree: Tree, scopes: list[Scope]) -> Value:
        inner = self.expression(tree[1], scopes)

        def run(frame: Frame) -> Any:
            value = inner(frame)
            return None if value is None else not value

        return run

    def _is_null(self, tree: Tree, scopes: list[Scope]) -> Value:
        inner, negated = self.expression(tree[1], scopes), tree[2]
        return lambda frame: (inner(frame) is None) is not negated

    def _in(self, tree: Tree, scopes: list[Scope]) -> Value:
        left, negated = self.expression(tree[1], scopes), tree[3]
        candidates: Callable[[Frame], list[Any]]
        if isinstance(tree[2], list):
            items = [self.expression(item, scopes) for item in tree[2]]
            candidates = lambda frame: [item(frame) for item in items]  # noqa: E731
        else:
            query = self.select(tree[2], scopes)
            candidates = lambda frame: [values[0] for values in query.run(frame)]  # noqa: E731

        def run(frame: Frame) -> Any:
            value = left(frame)
            options = candidates(frame)
            if value is not None and value in options:
                return not negated
            if options and (value is None or None in options):
                return None
            return negated

        return run

    def _like(self, tree: Tree, scopes: list[Scope]) -> Value:
        left, right = self.expression(tree[1], scopes), self.expression(tree[2], scopes)
        escape, negated = tree[3], tree[4]

        def run(frame: Frame) -> Any:
            value, pattern = left(frame), right(frame)
            if value is None or pattern is None:
                return None
            return bool(re.fullmatch(_pattern(pattern, escape), value, re.DOTALL)) is not negated

        return run

    def _exists(self, tree: Tree, scopes: list[Scope]) -> Value:
        query = self.select(tree[1], scopes)
        return lambda frame: any(True for _ in query.matching(frame))

    def _scalar(self, tree: Tree, scopes: list[Scope]) -> Value:
        query = self.select(tree[1], scopes)

        def run(frame: Frame) -> Any:
            if frame[1].remembers(query):  # evaluated once in a statement, as PostgreSQL's InitPlan is
                return frame[1].remembered(query)
            rows = query.run(frame)
            return frame[1].remember(query, rows[0][0] if rows else None)

        return run

    def _case(self, tree: Tree, scopes: list[Scope]) -> Value:
        branches = [(self.expression(when, scopes), self.expression(then, scopes)) for when, then in tree[1]]
        otherwise = self.expression(tree[2], scopes)

        def run(frame: Frame) -> Any:
            for when, then in branches:
                if when(frame) is True:
                    return then(frame)
            return otherwise(frame)

        return run

    def _call(self, tree: Tree, scopes: list[Scope]) -> Value:
        _, function, trees = tree
        arguments = [self.expression(argument, scopes) for argument in trees]
        if function == "concat":
            return lambda frame: functools.reduce(operator.add, [argument(frame) for argument in arguments])
        if function == "coalesce":
            return lambda frame: next((v for a in arguments if (v := a(frame)) is not None), None)
        raise UnknownSqlError(f"the function {function} is not known")


def _column(slot: int, name: str) -> Value:
    return lambda frame: frame[slot][name]


def _rank(value: Any) -> tuple[bool, Any]:
    return (False, 0) if value is None else (True, value)


def _pattern(like: str, escape: str) -> str:
    result, characters = "", iter(like)
    for character in characters:
        if character == escape:
            result += re.escape(next(characters, ""))
        else:
            result += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return result
