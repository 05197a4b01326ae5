"""All regular expressions of packages, by the calls of ``re`` in its source, with the methods that use each."""

from __future__ import annotations

import ast
import importlib
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import msgspec

# Method -> how to measure it: what looks at every place, and what begins at the first one.
_WAYS: Final = {
    "search": "search", "match": "match", "fullmatch": "fullmatch", "findall": "finditer", "finditer": "finditer",
    "split": "finditer", "sub": "finditer", "subn": "finditer",
}  # fmt: skip
# These are programs, or run in a ramdisk.
_NOT_IMPORTED: Final = {"migrations", "root", "__main__", "wsgi"}


class Expression(msgspec.Struct):
    """An expression, where it is, and the ways to measure it."""

    place: str
    pattern: re.Pattern[Any]
    ways: set[str] = set()


def find(*packages: Path) -> tuple[list[Expression], list[str]]:
    """Return all expressions, and the places that build some of values that are not known before."""
    visitors = []
    files = [(file, package.parent) for package in packages for file in sorted(package.rglob("*.py"))]
    for file, source in files:
        path = file.relative_to(source).with_suffix("")
        if not _NOT_IMPORTED & set(path.parts):
            visitors.append(_Visitor(".".join(path.parts).removesuffix(".__init__")))
            visitors[-1].visit(ast.parse(file.read_text()))
    for visitor in visitors:
        for expression in visitor.found:
            used = set[str]().union(*(other.uses[expression.place] for other in visitors))
            expression.ways = expression.ways or used or visitor.of_variables or set(_WAYS.values())
    return [one for visitor in visitors for one in visitor.found], [
        one for visitor in visitors for one in visitor.built
    ]


class _Visitor(ast.NodeVisitor):
    def __init__(self, module: str) -> None:
        self._scope, self._imported = [module], dict[str, str]()
        self._names = vars(importlib.import_module(module))
        self.found: list[Expression] = []
        self.built: list[str] = []
        self.uses: dict[str, set[str]] = defaultdict(set)
        # Methods of variables, of which some may be expressions.
        self.of_variables: set[str] = set()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        self.built += [".".join([*self._scope, "from re import"])] * (node.module == "re")
        self._imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._visit_within(node.name, node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._visit_within(ast.unparse(node.target), node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._visit_within(ast.unparse(node.targets[0]), node)

    def _visit_within(self, name: str, node: ast.AST) -> None:
        self._scope.append(name)
        self.generic_visit(node)
        self._scope.pop()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in _WAYS:
            name = ast.unparse(node.value)
            first, _, rest = name.partition(".")
            place = f"{self._imported.get(first, f'{self._scope[0]}.{first}')}{rest and '.'}{rest}"
            self.uses[place].add(_WAYS[node.attr])
            if name.islower() and name != "re" and node.attr != "split":
                self.of_variables.add(_WAYS[node.attr])
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called = ast.unparse(node.func)
        module, _, method = called.rpartition(".")
        if module == "re" and method in {*_WAYS, "compile"}:
            # Of the texts that a function is called with, the first one is the expression.
            self._add(
                [node.args[0], *(one for one in node.args[1:] if "re." in ast.unparse(one))], {method} & _WAYS.keys()
            )
        elif called.endswith(("Meta", "_with_schema")):
            self._add([keyword.value for keyword in node.keywords if keyword.arg == "pattern"], {"search"})
        self.generic_visit(node)

    def _add(self, arguments: list[ast.expr], methods: set[str]) -> None:
        place = ".".join(self._scope)
        try:
            values = [eval(ast.unparse(argument), self._names) for argument in arguments]
        except NameError:
            self.built.append(place)
            return
        if values:
            self.found.append(Expression(place, re.compile(*values), {_WAYS[method] for method in methods}))


def run(expression: Expression, way: str, text: Any) -> None:
    """Let the expression work on the text."""
    if way == "finditer":
        for _ in expression.pattern.finditer(text):
            pass
    else:
        getattr(expression.pattern, way)(text)
