"""The table of packages in architecture.md has a row for each package and module of the project, and no other.

The page and the docstring that lead a reader through the source name the same files, in the same order.
"""

from __future__ import annotations

import re

import ferroscope
from tests import ROOT
from tests.fast.docs.pages import page

_ROW = re.compile(r"^\| (`[^|]+`) \|", re.MULTILINE)


def test_the_map_names_every_package_and_root_module_and_no_other() -> None:
    package = ROOT / "src" / "ferroscope"
    packages = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py") if not path.name.startswith("__")}
    assert _named() == packages | modules


def _named() -> set[str]:
    table = page("docs/explanation/architecture.md").text.partition("| in `src/ferroscope/` |")[2].partition("\n\n")[0]
    return {name for names in _ROW.findall(table) for name in re.findall(r"`([^`]+)`", names)}


def test_start_here_is_the_same_walk_in_the_page_and_in_the_package() -> None:
    numbered = re.findall(r"^\d+\. \[([\w/.]+)\]", page("docs/explanation/start-here.md").text, re.MULTILINE)
    named = re.findall(r"``([\w/]+\.py)``", ferroscope.__doc__ or "")
    assert named == numbered
    assert len(named) == 12
    assert [name for name in named if not (ROOT / "src" / "ferroscope" / name).is_file()] == []
    first = re.findall(r"\]\(([\w/.-]+)\)", page("CONTRIBUTING.md").text)[0]
    assert first == "docs/explanation/start-here.md"
