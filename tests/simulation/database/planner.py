"""Trees to plans: a statement is compiled once, and its plan run as often as it comes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tests.simulation.database.expressions import Expressions, Scope, cell, resolve
from tests.simulation.database.plan import Change, Control, Derived, Frame, Insert, Plan, Select, Source, Value
from tests.simulation.database.storage import Table
from tests.simulation.database.text import Tree, parse
from tests.simulation.database.tokens import UnknownSqlError


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


class _Compiler:
    """Compiles one statement; ``width`` is how many places its frame has by now."""

    def __init__(self, tables: dict[str, Table]) -> None:
        self.tables = tables
        self.width = 2
        self.value = Expressions(self.select).value

    def source(self, table: str) -> Source:
        if table not in self.tables:
            raise UnknownSqlError(f"there is no table {table}")
        source = Source(self.tables[table], self.width)
        self.width += 1
        return source

    def derived(self, tree: Tree, outer: list[Scope], *, locked: bool) -> Derived:
        """Compile a query in FROM; the databases differ in which of its rows a lock around it means."""
        *_, lock, _skip, _distinct, names = tree
        if locked or lock:
            raise UnknownSqlError("FOR UPDATE with a query in FROM is not known")
        if "" in names or len(set(names)) < len(names):
            raise UnknownSqlError("each column of a query in FROM needs a name of its own")
        source = Derived(self.select(tree, outer), names, self.width)
        self.width += 1
        return source

    def select(self, tree: Tree, outer: list[Scope]) -> Select:
        _, items, sources, where, group, order, limit, lock, skip, distinct, _names = tree
        if group or distinct:
            raise UnknownSqlError("GROUP BY and DISTINCT are not known")
        plan = Select()
        scope: Scope = {}
        for table, alias in sources:
            scope[alias] = self.source(table) if isinstance(table, str) else self.derived(table, outer, locked=lock)
        plan.sources = list(scope.values())
        scopes = [*outer, scope]
        plan.where = None if where is None else self.value(where, scopes)
        self.find_keys(plan.sources, where, scopes)
        plan.aggregate = any(item[0] == "call" and item[1] in ("count", "min", "max", "sum") for item in items)
        if plan.aggregate:
            plan.items = [self.aggregate(item, plan, scopes) for item in items]
        else:
            plan.items = [value for item in items for value in self.item(item, scopes, plan.sources)]
        plan.order = [(self.value(value, scopes), descending) for value, descending in order]
        plan.limit = None if limit is None else self.value(limit, scopes)
        plan.locks, plan.skip = lock, skip
        return plan

    def item(self, tree: Tree, scopes: list[Scope], sources: list[Source]) -> list[Value]:
        if tree[0] != "all":
            return [self.value(tree, scopes)]
        return [cell(source.slot, name) for source in sources for name in source.table.columns]

    def aggregate(self, tree: Tree, plan: Select, scopes: list[Scope]) -> Value:
        _, function, (argument,) = tree
        value = (lambda _frame: 1) if argument[0] == "all" else self.value(argument, scopes)
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
            plan.rows.append([(column, self.value(value, [])) for column, value in zip(columns, row, strict=True)])
        if upsert:
            excluded = self.source(name)
            plan.excluded = excluded.slot
            scope = {name: source, "excluded": excluded}
            plan.upsert = [(column, self.value(value, [scope])) for column, value in upsert]
        plan.returning = [value for item in returning for value in self.item(item, [{name: source}], [source])]
        return plan

    def change(self, tree: Tree) -> Change:
        name = tree[1]
        source = self.source(name)
        plan = Change(source)
        scopes = [{name: source}]
        where = tree[-2]
        plan.where = None if where is None else self.value(where, scopes)
        self.find_keys([source], where, scopes)
        if tree[0] == "update":
            plan.changes = [(column, self.value(value, scopes)) for column, value in tree[2]]
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
                    if one[2] == source.table.key[0] and resolve(one, scopes)[0] is source:
                        source.key = self.value(other, scopes)
