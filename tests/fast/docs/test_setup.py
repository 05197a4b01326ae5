"""What is installed for whom: a user gets no test tools, and what is shipped needs none."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

from tests import ROOT
from tests.fast.docs.names import parsed

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _names(requirements: list[str]) -> set[str]:
    return {_plain(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> Iterator[tuple[str, str]]:
    """Yield file and top-level module of each import of another's package in src/, at whatever place."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(parsed(file)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module]
            for name in names:
                top = name.partition(".")[0]
                if top not in sys.stdlib_module_names and not top.startswith("ferroscope"):
                    yield str(file.relative_to(ROOT)), top


def test_what_is_shipped_imports_what_is_declared_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    offered = [extra for name, packages in extras.items() if name != "dev" for extra in packages]
    allowed = _names(PROJECT["dependencies"] + offered)
    origin = packages_distributions()
    found = list(_imported())
    assert len(found) > 50
    undeclared = {(file, top) for file, top in found if not allowed.intersection(map(_plain, origin.get(top, [top])))}
    assert not undeclared
