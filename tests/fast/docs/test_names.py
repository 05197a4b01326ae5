"""Names of the source on pages exist: paths, modules, classes, functions, and the modules that ``python -m`` runs."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from tests import ROOT
from tests.fast.docs.pages import Page, pages

PAGES: Final = [source for source in pages() if not source.name.startswith("docs/reference/")]

_PACKAGE: Final = ROOT / "src" / "ferroscope"
_PLACES: Final = ("src", "tests", "tools", "bench", "deploy", "docs", "examples", "changes", ".ci")
_PATH: Final = re.compile(r"\.?[\w-]+(?:/[\w.@-]+)*/?(?:\.\w+)?")
_DOTTED: Final = re.compile(r"[a-z_]+(?:\.\w+)+")
_CAMEL: Final = re.compile(r"(?:[A-Z][a-z]+){2,}")
_SNAKE: Final = re.compile(r"[a-z]+(?:_[a-z]+)+")
_MEMBER: Final = re.compile(r"[A-Z]\w*[a-z]\w*\.[a-z_]+")
_MODULE: Final = re.compile(r"python -m ([\w.]+)")
_CODE_LINK: Final = re.compile(r"\[`([\w.]+)(?:\(\))?`\]\(([^)\s#]+\.py)\)")
# Files that the pages let readers create.
_THEIRS: Final = {"rack_hook.py", "relay_bmc.py"}
# Names of MariaDB and its driver, of Ironic, of tenacity, and of the driver that a page lets readers write.
_FOREIGN: Final = {
    "innodb_flush_log_at_trx_commit", "ssl_cert", "ssl_key", "stop_when_event_set", "sleep_using_event",
    "before_sleep", "relay_password", "relay_bridging", "RequestReadTimeout", "MaxRequestWorkers",
    "inspect_wait_timeout",
}  # fmt: skip
# Dotted names that begin like a package of ours: keys of plugin data, entry point groups, a file.
_NOT_OURS: Final = {
    "hardware.inventory",
    "hardware.sources",
    "hardware.differences",
    "ferroscope.hooks",
    "ferroscope.bmc",
    "machines.csv",
}


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_paths_of_the_source_exist(source: Page) -> None:
    assert not [span for span in source.spans if _is_missing_path(span)]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_dotted_names_of_the_source_exist(source: Page) -> None:
    assert not [span for span in source.spans if _is_missing_name(span.removesuffix("()"))]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_classes_and_functions_that_are_named_occur_in_the_source(source: Page) -> None:
    named = [span.removesuffix("()") for span in source.spans]
    ours = [name for name in named if _CAMEL.fullmatch(name) or _SNAKE.fullmatch(name)]
    assert not [name for name in ours if name not in _words() and name not in _FOREIGN]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_members_of_classes_that_are_named_exist(source: Page) -> None:
    named = [span.removesuffix("()") for span in source.spans]
    assert not [name for name in named if _MEMBER.fullmatch(name) and not _is_member(*name.split("."))]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_a_link_to_a_function_is_to_the_file_that_has_it(source: Page) -> None:
    found = _CODE_LINK.findall(source.prose)
    assert not [(name, target) for name, target in found if not _defines((source.path.parent / target).resolve(), name)]


@pytest.mark.parametrize("source", PAGES, ids=lambda source: source.name)
def test_modules_that_are_run_exist(source: Page) -> None:
    modules = [name for name in _MODULE.findall(source.text) if name.split(".")[0] in ("tests", "tools", "bench")]
    assert not [name for name in modules if importlib.util.find_spec(name) is None]


def test_names_that_do_not_exist_are_found() -> None:
    assert _is_missing_path("worker/no_such.py")
    assert _is_missing_path("src/ferroscope/ports/")
    assert _is_missing_path("no_such_file.py")
    assert not _is_missing_path("core/states.py")
    assert not _is_missing_path("/etc/ferroscope/")
    assert _is_missing_name("ferroscope.core.states.NoSuch")
    assert not _is_member("Store", "no_such")
    assert _is_member("Store", "write")
    assert _is_missing_name("transition.no_such")
    assert not _is_missing_name("transition.start")
    assert _defines(_PACKAGE / "transition.py", "transition.start")
    assert not _defines(_PACKAGE / "transition.py", "transition.no_such")


def _is_missing_path(span: str) -> bool:
    """Return whether this is a path in the repository, or below src/ferroscope, that does not exist."""
    if not _PATH.fullmatch(span) or span in _THEIRS:
        return False
    first = span.partition("/")[0]
    if "/" not in span:
        return span.endswith(".py") and not any(list((ROOT / place).rglob(span)) for place in _PLACES)
    if first in _PLACES:
        return not (ROOT / span).exists()
    if span.endswith(".py") or (span.endswith("/") and first in _packages()):
        return not (_PACKAGE / span).exists()
    return False


def _is_missing_name(span: str) -> bool:
    """Return whether this is a dotted name of ours that cannot be resolved."""
    if not _DOTTED.fullmatch(span) or span in _NOT_OURS or span.endswith((".py", ".conf")):
        return False
    first = span.partition(".")[0]
    if first in ("ferroscope", "ferroscope_sim"):
        return not _resolves(span)
    return first in _packages() and not _resolves(f"ferroscope.{span}")


def _resolves(name: str) -> bool:
    """Return whether a dotted name leads to a module, or to something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return part in getattr(found, "__annotations__", {})
            found = getattr(found, part)
        return True
    return False


def _defines(file: Path, name: str) -> bool:
    """Return whether a file defines ``name``, which may begin with the file's module: ``states.State``."""
    module = file.relative_to(ROOT).with_suffix("").parts
    parts = tuple(name.split("."))
    if module[-len(parts) :] == parts and len(parts) > 1:
        return True
    return any(
        _has(file, parts[start:]) for start in range(len(parts)) if module[len(module) - start :] == parts[:start]
    )


def _has(file: Path, wanted: tuple[str, ...]) -> bool:
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else []
    for part in wanted:
        found = [one for one in body if part in _names(one)]
        if not found:
            return False
        body = getattr(found[0], "body", [])
    return True


def _names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_member(name: str, member: str) -> bool:
    """Return whether a class of this name has this member; true for classes of others."""
    found = _classes().get(name)
    return found is None or member in found


@cache
def _classes() -> dict[str, set[str]]:
    """Return the members of each class of the source: what its body defines, and what methods set on ``self``."""
    classes: dict[str, set[str]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                members = classes.setdefault(node.name, set())
                members.update(name for statement in node.body for name in _names(statement))
                members.update(one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return classes


@cache
def _packages() -> frozenset[str]:
    return frozenset(path.stem for path in _PACKAGE.iterdir() if path.name[0] not in "._")


@cache
def _words() -> frozenset[str]:
    """Return every word of the source, the tests, the tools, the deployed files and the reference pages."""
    files = [
        path for place in _PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".service", ".cfg")
    ]
    files += (ROOT / "docs" / "reference").glob("*.md")
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
