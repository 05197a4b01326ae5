"""Trees of expressions to functions of a frame. NULL is None, and logic has three values, as in SQL."""

from __future__ import annotations

import functools
import json
import operator
import re
from collections.abc import Callable
from typing import Any

from tests.simulation.database.plan import Frame, Select, Source, Value
from tests.simulation.database.text import Tree
from tests.simulation.database.tokens import UnknownSqlError

Scope = dict[str, Source]
Subquery = Callable[[Tree, list[Scope]], Select]

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "||": operator.add,
}  # fmt: skip


class Expressions:
    """Compiles for one statement; ``subquery`` compiles a SELECT within it."""

    def __init__(self, subquery: Subquery) -> None:
        self._subquery = subquery

    def value(self, tree: Tree, scopes: list[Scope]) -> Value:
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
        source, name = resolve(tree, scopes)
        if name not in source.table.columns:
            raise UnknownSqlError(f"{source.table.name} has no column {name}")
        return cell(source.slot, name)

    def _compare(self, tree: Tree, scopes: list[Scope]) -> Value:
        return self._combined(_COMPARE[tree[1]], tree, scopes)

    def _arithmetic(self, tree: Tree, scopes: list[Scope]) -> Value:
        return self._combined(_ARITHMETIC[tree[1]], tree, scopes)

    def _combined(self, combine: Callable[[Any, Any], Any], tree: Tree, scopes: list[Scope]) -> Value:
        left, right = self.value(tree[2], scopes), self.value(tree[3], scopes)

        def run(frame: Frame) -> Any:
            one, other = left(frame), right(frame)
            return None if one is None or other is None else combine(one, other)

        return run

    def _and(self, tree: Tree, scopes: list[Scope]) -> Value:
        parts = [self.value(part, scopes) for part in tree[1]]

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
        parts = [self.value(part, scopes) for part in tree[1]]

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
        inner = self.value(tree[1], scopes)

        def run(frame: Frame) -> Any:
            value = inner(frame)
            return None if value is None else not value

        return run

    def _is_null(self, tree: Tree, scopes: list[Scope]) -> Value:
        inner, negated = self.value(tree[1], scopes), tree[2]
        return lambda frame: (inner(frame) is None) is not negated

    def _in(self, tree: Tree, scopes: list[Scope]) -> Value:
        left, negated = self.value(tree[1], scopes), tree[3]
        candidates: Callable[[Frame], list[Any]]
        if isinstance(tree[2], list):
            items = [self.value(item, scopes) for item in tree[2]]
            candidates = lambda frame: [item(frame) for item in items]  # noqa: E731
        else:
            query = self._subquery(tree[2], scopes)
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
        left, right = self.value(tree[1], scopes), self.value(tree[2], scopes)
        escape, negated = tree[3], tree[4]

        def run(frame: Frame) -> Any:
            value, pattern = left(frame), right(frame)
            if value is None or pattern is None:
                return None
            return bool(re.fullmatch(_pattern(pattern, escape), value, re.DOTALL)) is not negated

        return run

    def _exists(self, tree: Tree, scopes: list[Scope]) -> Value:
        query = self._subquery(tree[1], scopes)
        return lambda frame: any(True for _ in query.matching(frame))

    def _scalar(self, tree: Tree, scopes: list[Scope]) -> Value:
        query = self._subquery(tree[1], scopes)

        def run(frame: Frame) -> Any:
            if frame[1].remembers(query):  # evaluated once in a statement, as PostgreSQL's InitPlan is
                return frame[1].remembered(query)
            rows = query.run(frame)
            return frame[1].remember(query, rows[0][0] if rows else None)

        return run

    def _case(self, tree: Tree, scopes: list[Scope]) -> Value:
        branches = [(self.value(when, scopes), self.value(then, scopes)) for when, then in tree[1]]
        otherwise = self.value(tree[2], scopes)

        def run(frame: Frame) -> Any:
            for when, then in branches:
                if when(frame) is True:
                    return then(frame)
            return otherwise(frame)

        return run

    def _call(self, tree: Tree, scopes: list[Scope]) -> Value:
        _, function, trees = tree
        arguments = [self.value(argument, scopes) for argument in trees]
        if function == "concat":
            return lambda frame: functools.reduce(operator.add, [argument(frame) for argument in arguments])
        if function == "coalesce":
            return lambda frame: next((v for a in arguments if (v := a(frame)) is not None), None)
        if function == "replace":
            return lambda frame: str(arguments[0](frame)).replace(arguments[1](frame), arguments[2](frame))
        if function in ("json_extract", "json_extract_path_text"):
            return lambda frame: _attribute(arguments[0](frame), arguments[1](frame))
        if function == "json_unquote":
            return arguments[0]
        raise UnknownSqlError(f"the function {function} is not known")


def resolve(tree: Tree, scopes: list[Scope]) -> tuple[Source, str]:
    """Return the table that a column's tree means, and the column's name; the innermost scope goes first."""
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


def cell(slot: int, name: str) -> Value:
    """Return the function of a column of the present row in that slot."""
    return lambda frame: frame[slot][name]


def _pattern(like: str, escape: str) -> str:
    result, characters = "", iter(like)
    for character in characters:
        if character == escape:
            result += re.escape(next(characters, ""))
        else:
            result += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return result


def _attribute(document: str, path: str) -> str | None:
    """Return a value of a JSON document as a text, None if it is missing."""
    value = json.loads(document).get(path.removeprefix("$."))
    return value if value is None or isinstance(value, str) else json.dumps(value)
