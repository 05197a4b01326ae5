"""The folder of a test says how quick it is, what it needs, and when it runs; nothing else does."""

from __future__ import annotations

import ast
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.support.guard import QUICK, ProcessStartedError
from tools import tests as runner

FOLDERS = ("fast", "store", "api", "smoke", "system", "nightly")
LIBRARIES = ("support", "simulation", "corpus")
# Marks that say how a test runs, not whether.
MARKS = {"parametrize", "usefixtures", "timeout", "filterwarnings"}


def _sources(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for file in sorted((ROOT / "tests" / folder).rglob("*.py")):
            yield file, ast.parse(file.read_text(encoding="utf-8"))


def test_a_quick_test_cannot_start_a_process() -> None:
    with pytest.raises(ProcessStartedError):
        subprocess.run(["true"], check=True)
    with pytest.raises(ProcessStartedError):
        os.fork()
    with pytest.raises(ProcessStartedError):
        os.posix_spawn("/bin/true", ["true"], {})
    with pytest.raises(ProcessStartedError):
        os.system("true")


def test_all_tests_are_in_a_folder_that_some_command_runs() -> None:
    found = {file.relative_to(ROOT / "tests").parts[0] for file in (ROOT / "tests").rglob("test_*.py")}
    assert found == set(FOLDERS)
    parts = {file.relative_to(ROOT / "tests/nightly").parts[0] for file in (ROOT / "tests/nightly").rglob("test_*.py")}
    assert parts <= set(runner.parts())


def test_folders_need_environments_that_exist() -> None:
    known = {file.stem for file in (ROOT / "tools/setup").glob("*.sh")} - {"common"}
    wanted = {folder: set(runner.needs(ROOT / "tests" / folder)) for folder in (*FOLDERS, *LIBRARIES)}
    assert not {folder: unknown for folder, names in wanted.items() if (unknown := names - known)}
    assert wanted["fast"] == set()
    assert wanted["store"] == wanted["api"] == wanted["smoke"] == {"postgresql"}
    assert "kubernetes" not in wanted["system"]


def test_no_mark_decides_whether_a_test_runs() -> None:
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.attr}"
        for file, tree in _sources(*FOLDERS)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark" and node.attr not in MARKS
    ]
    assert not wrong


def test_quick_tests_import_nothing_from_slow_ones() -> None:
    slow = ("tests.smoke", "tests.system", "tests.nightly")
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.module}"
        for file, tree in _sources(*QUICK, *LIBRARIES)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(slow)
    ]
    assert not wrong


def test_what_make_test_runs_asks_for_no_server_but_postgresql() -> None:
    others = {f"{how}_{kind}" for how in ("shared", "own") for kind in ("mariadb", "rabbitmq", "swift")}
    others |= {"mariadb_url", "mariadb_server", "swift_server"}
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {node.arg}"
        for file, tree in _sources(*QUICK, "smoke")
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg in others
    ]
    assert not wrong


def test_what_a_nightly_part_runs_beside_its_tests_exists() -> None:
    for file in (ROOT / "tests/nightly").glob("*/commands"):
        for line in file.read_text().splitlines():
            python, module, name, *_ = line.split()
            assert (python, module) == ("python", "-m"), file
            assert name == "pytest" or list(ROOT.glob(f"{name.replace('.', '/')}*")), line
