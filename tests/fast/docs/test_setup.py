"""What is installed for whom: a user gets no test tools, what is shipped needs none, and tests find their servers."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tests import ROOT
from tests.support import misses
from tools.tests import needs

_IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?: *#.*)?$)", re.MULTILINE)
_SUPPORT = re.compile(r"^ *from (tests\.support[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _names(requirements: list[str]) -> set[str]:
    return {_plain(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _imported() -> Iterator[tuple[str, str]]:
    """Yield file and top-level module of each import of another's package in src/, at whatever place."""
    for file in sorted((ROOT / "src").rglob("*.py")):
        for match in _IMPORT.finditer(file.read_text(encoding="utf-8")):
            top = match[1] or match[2]
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


# What installs each kind of server that tests start: a word in one of the files in tools/setup.
PROGRAMS = {
    "postgresql": "bin/postgres:",
    "mariadb": "mariadbd:",
    "swift": "locked_venv swift ",
    "rabbitmq": "rabbitmq-server:",
    "etcd": "etcd:",
    "zookeeper": "zookeeper.jar:",
    "redis": "redis-server:",
}
_STARTED = re.compile(r'\bServer\(\s*"(\w+)"|\b(?:shared_)?(\w+)_(?:server|url)\b|\bshared_(\w+)\b')


def _used(folder: Path) -> set[Path]:
    """Return the files of a folder of tests, and those of tests/support that they import, directly or not."""
    found: set[Path] = set()
    ahead = list(folder.rglob("*.py"))
    while ahead:
        file = ahead.pop()
        if file in found:
            continue
        found.add(file)
        modules = {
            name
            for module, imported in _SUPPORT.findall(file.read_text(encoding="utf-8"))
            for name in (module, *(f"{module}.{one}" for one in re.findall(r"\w+", imported)))
        }
        places = [ROOT / module.replace(".", "/") for module in modules]
        ahead += [file for one in places for file in (one.with_suffix(".py"), one / "__init__.py") if file.exists()]
    return found


def _servers(folder: Path) -> set[str]:
    """Return the kinds of servers that the tests of a folder start."""
    texts = (file.read_text(encoding="utf-8") for file in _used(folder))
    return {kind for text in texts for match in _STARTED.finditer(text) for kind in match.groups() if kind in PROGRAMS}


def test_what_tests_start_is_set_up_for_them() -> None:
    folders = sorted(file.parent for file in (ROOT / "tests").rglob("needs"))
    assert _servers(ROOT / "tests" / "nightly" / "dcim") == {"postgresql", "redis"}
    misses.none(
        f"{folder.relative_to(ROOT)}: its tests start {kind}, which nothing in its file needs installs"
        for folder in folders
        for kind in sorted(_servers(folder))
        if not any(PROGRAMS[kind] in (ROOT / f"tools/setup/{name}.sh").read_text() for name in needs(folder))
    )
