"""What is installed is what was locked, and what is shipped needs nothing else."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import ferroscope
from tests import ROOT
from tests.support import misses

_IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?: *#.*)?$)", re.MULTILINE)
PROJECT, CLIENT = (
    tomllib.loads((ROOT / file).read_text())["project"] for file in ("pyproject.toml", "client/pyproject.toml")
)
LOCKS = [
    ROOT / "requirements.txt",
    ROOT / "constraints.txt",
    *sorted(file for folder in ("tools", "tests") for file in (ROOT / folder).rglob("*constraints.txt")),
]


def _locked(path: Path) -> dict[str, tuple[str, int]]:
    """Return name -> version and number of hashes."""
    found = {}
    for entry in re.sub(r"\\\n", "", path.read_text()).splitlines():
        if entry and not entry.startswith("#"):
            pin, *hashes = re.split(r"\s+(?=--)", entry)
            name, version = pin.partition(" ;")[0].split("==")
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes)
            found[_plain(name)] = (version, len(hashes))
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _names(requirements: list[str]) -> set[str]:
    return {_plain(re.split(r"[^A-Za-z0-9._-]", one)[0]) for one in requirements}


def test_every_locked_package_has_a_hash() -> None:
    locked = {path.name: _locked(path) for path in LOCKS}
    assert all(locked.values())
    misses.none(
        f"{path}: {name}" for path, packages in locked.items() for name, (_, hashes) in packages.items() if not hashes
    )


def test_an_installation_has_every_package_that_the_service_needs_in_the_version_of_the_tests() -> None:
    wanted = _names(PROJECT["dependencies"]) - {CLIENT["name"]} | _names(CLIENT["dependencies"])
    user, dev = _locked(ROOT / "requirements.txt"), _locked(ROOT / "constraints.txt")
    assert wanted <= set(user)
    assert user.items() <= dev.items()
    assert not {"pytest", "mypy", "ruff"} & set(user)


def test_every_environment_is_installed_with_hashes_only() -> None:
    scripts = [file.read_text() for file in (ROOT / "tools/setup.sh", *(ROOT / "tools/setup").glob("*.sh"))]
    lines = [line.strip() for script in scripts for line in script.splitlines() if not line.startswith("pip_install()")]
    installs = [line for line in lines if "pip_install" in line or "pip install" in line]
    assert len(installs) == 3
    installs.remove('"$environment/bin/python" -m pip install -qq --disable-pip-version-check "$@" >&2 ||')
    assert all("--require-hashes" in line or "--no-deps --no-build-isolation -e ." in line for line in installs)


def test_the_service_needs_the_client_of_its_own_release() -> None:
    assert f"{CLIENT['name']}=={ferroscope.__version__}" in PROJECT["dependencies"]


def _imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield file and top-level module of each import of another's package in a folder, at whatever place."""
    for file in sorted((ROOT / source).rglob("*.py")):
        for match in _IMPORT.finditer(file.read_text(encoding="utf-8")):
            top = match[1] or match[2]
            if top not in sys.stdlib_module_names and not top.startswith("ferroscope"):
                yield str(file.relative_to(ROOT)), top


def test_what_is_shipped_imports_what_is_declared_for_users() -> None:
    extras = PROJECT["optional-dependencies"]
    offered = [package for packages in extras.values() for package in packages]
    allowed = _names(PROJECT["dependencies"] + offered)
    origin = packages_distributions()
    found = list(_imported("src"))
    assert len(found) > 50
    undeclared = {(file, top) for file, top in found if not allowed.intersection(map(_plain, origin.get(top, [top])))}
    assert not undeclared
