"""Finds where a test asserts how long something took: that depends on the machine, and belongs in ``bench``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

_MODULES: Final = frozenset({"time", "os", "resource"})
_CLOCKS: Final = frozenset(
    f"{name}{unit}"
    for name in ("time", "monotonic", "perf_counter", "process_time", "thread_time", "clock_gettime")
    for unit in ("", "_ns")
) | {"times", "getrusage"}
_SPANS: Final = frozenset({"elapsed", "took", "duration_of"})
_MAY_HAVE: Final = re.compile(r"\b(?:import|from) (?:time|os|resource)\b|" + "|".join(sorted(_SPANS)))


def found(source: str) -> list[tuple[int, str]]:
    """Return the lines that assert on time that has passed, with the name of the function that they stand in."""
    if not _MAY_HAVE.search(source):
        return []
    module = ast.parse(source)
    imported = _imported(module)
    return sorted({(line, name) for name, body in _functions(module) for line in _Function(body, imported).found()})


def _imported(module: ast.Module) -> frozenset[str]:
    """Return the names by which the file calls clocks without their module."""
    return frozenset(
        alias.asname or alias.name
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and node.module in _MODULES
        for alias in node.names
        if alias.name in _CLOCKS
    )


def _functions(module: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node


class _Function:
    """One function: which of its names hold a moment of a clock, and which a span between two."""

    def __init__(self, body: ast.AST, imported: frozenset[str]) -> None:
        self._body = body
        self._imported = imported
        self._moments: set[str] = set()
        self._spans: set[str] = set(_SPANS)
        before = -1
        while before != (before := len(self._moments) + len(self._spans)):
            self._look()

    def found(self) -> Iterator[int]:
        for node in ast.walk(self._body):
            if isinstance(node, ast.Assert) and any(self._is_span(part) for part in ast.walk(node.test)):
                yield node.lineno
            elif isinstance(node, ast.Assert):
                yield from (part.lineno for part in ast.walk(node.test) if self._is_limit(part))

    def _look(self) -> None:
        for node in ast.walk(self._body):
            match node:
                case (
                    ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value)
                ):
                    self._assigned(target, value)
                case ast.NamedExpr(target=target, value=value):
                    self._assigned(target, value)
                case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value]):
                    self._assigned(ast.Name(id=name), value)

    def _assigned(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                self._assigned(one, its)
        elif isinstance(target, ast.Name):
            if any(self._is_span(part) for part in ast.walk(value)):
                self._spans.add(target.id)
            elif self._is_clock(value):
                self._moments.add(target.id)

    def _is_clock(self, node: ast.AST) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                return module in _MODULES and name in _CLOCKS
            case ast.Call(func=ast.Name(id=name)):
                return name in self._imported
        return False

    def _is_moment(self, node: ast.AST) -> bool:
        return self._is_clock(node) or (isinstance(node, ast.Name) and node.id in self._moments)

    def _is_span(self, node: ast.AST) -> bool:
        """Tell whether it is the time between two moments, or a name for that."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            return any(self._is_moment(part) for side in (node.left, node.right) for part in ast.walk(side))
        return isinstance(node, ast.Name) and node.id in self._spans

    def _is_limit(self, node: ast.AST) -> bool:
        """Tell whether a moment is compared with another one and so many seconds."""
        if not isinstance(node, ast.Compare):
            return False
        sides = [node.left, *node.comparators]
        return any(self._is_moment(part) for side in sides for part in ast.walk(side)) and any(
            isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add) for side in sides
        )
