"""What contributors call, in newer Debians than the one of ``make test``, with their Pythons and database servers.

There is no network in them: what the lock file names for that Python is fetched before. A package that has no wheel for
it, or whose hash is not locked, is an error. No Debian has Python 3.12.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.support.debian import Debian, make
from tools.packaging import contents


class Suite(NamedTuple):
    """A release of Debian, and the versions in it that are tested."""

    name: str
    python: str
    postgresql: str
    mariadb: str


# Debian 13, testing and unstable.
SUITES = (
    Suite("trixie", "3.13", "17", "11.8"),
    Suite("forky", "3.14", "18", "11.8"),
    Suite("sid", "3.15", "18", "11.8"),
)
# What tools/setup.sh would install, and the tests' other programs.
PACKAGES = (
    "git", "make", "python3", "postgresql", "mariadb-server", "sqlite3", "jq", "iproute2",
    "openssl", "procps", "util-linux", "valgrind", "ca-certificates", "netbase", "tzdata",
)  # fmt: skip
SOURCE, WHEELS = "/src", "/wheels"
HOURS = 3600


@pytest.fixture(params=SUITES, ids=lambda suite: suite.name)
def suite(request: pytest.FixtureRequest) -> Suite:
    return request.param


@pytest.fixture
def debian(suite: Suite) -> Iterator[Debian]:
    """Give a Debian with the source of this tree, and with the packages that it pins."""
    python = f"python{suite.python}"
    with tempfile.TemporaryDirectory(prefix="ferroscope-debian-", ignore_cleanup_errors=True) as name:
        root = Path(name) / "root"
        make(root, suite.name, *PACKAGES, f"{python}-venv", f"{python}-dev")
        _copy_source(root)
        _fetch(suite.python, root / WHEELS.strip("/"))
        with Debian(root) as booted:
            yield booted


def _copy_source(root: Path) -> None:
    """Copy what git knows, as it is in this tree, with its history."""
    target = root / SOURCE.strip("/")
    subprocess.run(["git", "clone", "-q", "--no-local", f"file://{ROOT}", target], check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    present = "\n".join(name for name in names if name and (ROOT / name).exists())
    subprocess.run(
        f"tar -c --no-recursion -T - | tar -x -C {target}", shell=True, cwd=ROOT, input=present, text=True, check=True
    )


def _fetch(python: str, directory: Path) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as pinned:
        pinned.write("\n".join(contents.pins(python, "constraints.txt")))
        pinned.flush()
        machine = os.uname().machine
        names = [*(f"manylinux_2_{minor}_{machine}" for minor in range(41, 4, -1)), f"manylinux2014_{machine}", "any"]
        command = [sys.executable, "-m", "pip", "download", "-qq", "--require-hashes", "--no-deps", "-r", pinned.name]
        command += [f"--python-version={python}", "--only-binary=:all:", f"--dest={directory}"]
        subprocess.run([*command, *(f"--platform={name}" for name in names)], check=True)


def _run(debian: Debian, *words: str) -> str:
    offline = ("PIP_NO_INDEX=1", f"PIP_FIND_LINKS={WHEELS}")
    return debian.run("env", "--chdir", SOURCE, "HOME=/root", *offline, *words, patience=2 * HOURS)


@pytest.mark.timeout(3 * HOURS)
def test_make_test_passes_and_the_stores_tests_on_mariadb(debian: Debian, suite: Suite) -> None:
    assert " passed" in _run(debian, f"PYTHON=python{suite.python}", "make", "test")
    assert f"Python {suite.python}." in _run(debian, ".venv/bin/python", "--version")
    assert f"PostgreSQL) {suite.postgresql}." in debian.run("sh", "-c", "/usr/lib/postgresql/*/bin/postgres --version")
    assert f"{suite.mariadb}." in debian.run("mariadbd", "--version")
    assert " passed" in _run(
        debian, ".venv/bin/python", "-m", "pytest", "-q", "-n", "2", "--databases", "mariadb", "tests/store"
    )
