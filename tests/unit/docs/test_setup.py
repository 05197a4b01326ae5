"""What is installed for whom: a user gets no test tools, and what is shipped needs none."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _steps(target: str) -> list[str]:
    """Return what ``make`` would run."""
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("target", ["setup", "demo"])
def test_what_users_call_installs_no_test_tools(target: str) -> None:
    steps = _steps(target)
    assert "tools/setup.sh venv" in steps
    assert "tools/setup.sh dev" not in steps


@pytest.mark.parametrize("target", ["test", "lint", "format", "bench", "chaos", "fuzz"])
def test_what_contributors_call_installs_them_first(target: str) -> None:
    assert _steps(target)[0] == "tools/setup.sh dev"


def _names(requirements: list[str]) -> set[str]:
    return {_plain(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> Iterator[tuple[str, str]]:
    """Yield file and top-level module of each import of another's package in src/, at whatever place."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
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
