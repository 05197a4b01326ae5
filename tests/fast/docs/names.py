"""Whether a name in a text is one of the source: a path, a dotted name, a class, a function, a member."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests import ROOT
from tests.fast.docs.pages import Page

PACKAGE: Final = ROOT / "src" / "ferroscope"
_PLACES: Final = ("src", "tests", "tools", "bench", "deploy", "docs", "examples", "changes", ".ci")
_PATH: Final = re.compile(r"\.?[\w-]+(?:/[\w.@-]+)*/?(?:\.\w+)?")
_OTHERS_PATH: Final = "ironic_inspector/"  # of what we import from
_DOTTED: Final = re.compile(r"[a-z_]+(?:\.\w+)+")
_CAMEL: Final = re.compile(r"(?:[A-Z][a-z]+){2,}")
_SNAKE: Final = re.compile(r"[a-z]+(?:_[a-z]+)+")
_MEMBER: Final = re.compile(r"[A-Z]\w*[a-z]\w*\.[a-z_]+")
_MODULE: Final = re.compile(r"python -m ([\w.]+)")
_CODE_LINK: Final = re.compile(r"\[`([\w.]+)(?:\(\))?`\]\(([^)\s#]+\.py)\)")
# Files that the pages let readers create.
_THEIRS: Final = {"rack_hook.py", "relay_bmc.py", "greeter.py", "greeter_command.py"}
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
    "ferroscope.commands",
    "ferroscope.subcommands",
    "ferroscope.options",
    "ferroscope.roles",
    "ferroscope.backends",
    "ferroscope.tasks",
    "ferroscope.exporters",
    "ferroscope.routes",
    "ferroscope.pages",
    "machines.csv",
}


def wrong_names(source: Page) -> Iterator[str]:
    """Tell the spans of a text that look like names of the source and are none."""
    for span in source.spans:
        name = span.removesuffix("()")
        if is_missing_path(span):
            yield f"{source.at(span)}: the path {span} does not exist"
        if is_missing_name(name):
            yield f"{source.at(span)}: {span} does not exist"
        if (_CAMEL.fullmatch(name) or _SNAKE.fullmatch(name)) and name not in _words() and name not in _FOREIGN:
            yield f"{source.at(span)}: no file has the name {span}"
        if _MEMBER.fullmatch(name) and not is_member(*name.split(".")):
            yield f"{source.at(span)}: the class has no member {span}"


def wrong_links(source: Page) -> Iterator[str]:
    """Tell the links of names to files that do not define them."""
    for name, target in _CODE_LINK.findall(source.prose):
        if not defines((source.path.parent / target).resolve(), name):
            yield f"{source.at(f'({target}')}: {target} does not define {name}"


def wrong_modules(source: Page) -> Iterator[str]:
    """Tell the modules that a text runs and that do not exist."""
    for name in _MODULE.findall(source.text):
        if name.split(".")[0] in ("tests", "tools", "bench") and importlib.util.find_spec(name) is None:
            yield f"{source.at(name)}: there is no module {name}"


@cache
def is_missing_path(span: str) -> bool:
    """Return whether this is a path in the repository, or below src/ferroscope, that does not exist."""
    if not _PATH.fullmatch(span) or span in _THEIRS or span.startswith(_OTHERS_PATH):
        return False
    first = span.partition("/")[0]
    if "/" not in span:
        return span.endswith(".py") and span not in _files()
    if first in _PLACES:
        return not (ROOT / span).exists()
    if span.endswith(".py") or (span.endswith("/") and first in packages()):
        return not (PACKAGE / span).exists()
    return False


def is_missing_name(span: str) -> bool:
    """Return whether this is a dotted name of ours that cannot be resolved."""
    if not _DOTTED.fullmatch(span) or span in _NOT_OURS or span.endswith((".py", ".conf")):
        return False
    first = span.partition(".")[0]
    if first in ("ferroscope", "ferroscope_sim"):
        return not is_resolved(span)
    return first in packages() and not is_resolved(f"ferroscope.{span}")


@cache
def is_resolved(name: str) -> bool:
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


@cache
def defines(file: Path, name: str) -> bool:
    """Return whether a file defines ``name``, which may begin with the file's module: ``states.State``."""
    module = file.relative_to(ROOT).with_suffix("").parts
    parts = tuple(name.split("."))
    if module[-len(parts) :] == parts and len(parts) > 1:
        return True
    return any(
        _has(file, parts[start:]) for start in range(len(parts)) if module[len(module) - start :] == parts[:start]
    )


def _has(file: Path, wanted: tuple[str, ...]) -> bool:
    body: list[ast.stmt] = parsed(file).body if file.is_file() else []
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


def is_member(name: str, member: str) -> bool:
    """Return whether a class of this name has this member; true for classes of others."""
    found = _classes().get(name)
    return found is None or member in found


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def _classes() -> dict[str, set[str]]:
    """Return the members of each class of the source: what its body defines, and what methods set on ``self``."""
    classes: dict[str, set[str]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                members = classes.setdefault(node.name, set())
                members.update(name for statement in node.body for name in _names(statement))
                members.update(one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return classes


@cache
def _files() -> frozenset[str]:
    return frozenset(path.name for place in _PLACES for path in (ROOT / place).rglob("*.py"))


@cache
def packages() -> frozenset[str]:
    return frozenset(path.stem for path in PACKAGE.iterdir() if path.name[0] not in "._")


@cache
def _words() -> frozenset[str]:
    """Return every word of the source, the tests, the tools, the deployed files and the reference pages."""
    files = [
        path for place in _PLACES for path in (ROOT / place).rglob("*") if path.suffix in (".py", ".service", ".cfg")
    ]
    files += (ROOT / "docs" / "reference").glob("*.md")
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))
