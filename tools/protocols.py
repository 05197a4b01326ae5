"""The Protocols of the packages, and by which classes each is implemented; ``tools.sizes`` counts them.

A class counts as an implementation if it has all names of the Protocol, whatever its bases, so the number is a bound:
one with a single method is implemented by many. A Protocol with one implementation says everything twice, unless others
implement it, too: plug-ins, a library or a simulation.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Class(NamedTuple):
    """A class: its bases by their last name, and the names in its body and on ``self``."""

    module: str
    name: str
    bases: tuple[str, ...]
    names: frozenset[str]


def classes(source: Path) -> list[Class]:
    """Return all classes in the Python files below ``source``."""
    return [
        Class(path.relative_to(source).as_posix(), node.name, tuple(map(_last, node.bases)), frozenset(_names(node)))
        for path in sorted(source.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    ]


def implementations(found: list[Class]) -> dict[Class, list[Class]]:
    """Return for each Protocol the classes that have all its public names."""
    by_name: dict[str, list[Class]] = {}
    for one in found:
        by_name.setdefault(one.name, []).append(one)
    protocols = [one for one in found if "Protocol" in one.bases]
    others = [(one, _all_names(one, by_name)) for one in found if "Protocol" not in one.bases]
    return {
        protocol: [one for one, names in others if _public(_all_names(protocol, by_name)) <= names]
        for protocol in protocols
    }


def _all_names(one: Class, by_name: dict[str, list[Class]]) -> frozenset[str]:
    inherited = (_all_names(base, by_name) for name in one.bases if name != one.name for base in by_name.get(name, []))
    return one.names.union(*inherited)


def _public(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name in names if name == "__call__" or not name.startswith("_"))


def _last(base: ast.expr) -> str:
    base = base.value if isinstance(base, ast.Subscript) else base
    return base.attr if isinstance(base, ast.Attribute) else ast.unparse(base)


def _names(node: ast.ClassDef) -> Iterator[str]:
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield statement.name
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and ast.unparse(inner.value) == "self":
            yield inner.attr
