"""The docstrings of the source as pages, and what their names mean there, where siblings need no package."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.fast.docs.names import PACKAGE, defines, is_resolved, packages, parsed, wrong_names
from tests.fast.docs.pages import Page

_DOTTED: Final = re.compile(r"[a-z_]+(?:\.\w+)+")
_WORD: Final = re.compile(r"[a-z_]+")
# What data and variables are called, not modules: a node's fields, what a ramdisk sends, a file on a floppy.
_DATA: Final = {
    "boot", "context", "inventory", "it", "label", "node", "numa_topology", "oslo", "parameters", "plugin_data",
    "properties", "section", "table",
}  # fmt: skip
# Fields of data, in docstrings of packages.
_FIELDS: Final = {"driver_info", "if_lease"}


def docstrings() -> Iterator[Page]:
    """Yield each file of the source with nothing left but its docstrings, at their lines."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        yield of(str(file.relative_to(ROOT)), parsed(file), file.read_text(encoding="utf-8"))


def of(name: str, tree: ast.Module, text: str) -> Page:
    lines = text.splitlines()
    kept = [""] * len(lines)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            ast.get_docstring(node, clean=False) is not None
        ):
            start, end = node.body[0].lineno - 1, node.body[0].end_lineno
            kept[start:end] = lines[start:end]
    return Page(name, "\n".join(kept).replace("``", "`"))


def wrong(source: Page) -> Iterator[str]:
    """Tell the names in docstrings that are those of nothing."""
    yield from wrong_names(source)
    for span in source.spans:
        name = span.removesuffix("()")
        if _DOTTED.fullmatch(name) and not name.endswith(".py") and not _is_known(name):
            yield f"{source.at(f'`{span}`')}: {span} is neither ours nor a package's"
    if source.path.name == "__init__.py":
        yield from _strangers(source)


def _is_known(name: str) -> bool:
    """Return whether a dotted name is data, of a module of ours (wherever it lies), or of a package of others."""
    first, *rest = name.split(".")
    if first in _DATA or first in packages() or first in ("ferroscope", "ferroscope_sim", "ferroscope_lease"):
        return True  # ours with their package: the pages' check has looked
    if any(defines(file, ".".join(rest)) for file in _modules().get(first, ())):
        return True
    return hasattr(builtins, first) or is_resolved(name) or importlib.util.find_spec(first) is not None


def _strangers(source: Page) -> Iterator[str]:
    """Tell what a package's docstring names and neither it nor the service's package has."""
    directory = source.path.parent
    known = packages() | _FIELDS | {path.stem for path in directory.iterdir()}
    for file in directory.glob("*.py"):
        known |= {one.name for one in ast.walk(parsed(file)) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    for span in Page(source.name, source.text.lstrip().partition('"""\n')[0]).spans:
        if _WORD.fullmatch(span) and span not in known:
            yield f"{source.at(f'`{span}`')}: the package has no {span}"


@cache
def _modules() -> dict[str, list[Path]]:
    found = defaultdict(list)
    for file in PACKAGE.parent.rglob("*.py"):
        found[file.stem].append(file)
    return found
