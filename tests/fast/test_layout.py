"""The folder of a test says how quick it is, what it needs, and when it runs; nothing else does."""

from __future__ import annotations

import ast
import os
import re
import subprocess

import pytest

from tests import ROOT
from tests.support.guard import QUICK, ProcessStartedError
from tools import tests as runner

FOLDERS = ("fast", "store", "api", "smoke", "system", "nightly")
LIBRARIES = ("support", "simulation", "corpus")
# Marks that say how a test runs, not whether.
MARKS = {"parametrize", "usefixtures", "timeout", "filterwarnings"}


def _lines(pattern: str, *folders: str) -> list[str]:
    """Return place and match of each line below these folders that a pattern matches."""
    return [
        f"{file.relative_to(ROOT)}:{number}: {match[1]}"
        for folder in folders
        for file in sorted((ROOT / "tests" / folder).rglob("*.py"))
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        for match in re.finditer(pattern, line)
    ]


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
    assert wanted["store"] == wanted["api"] == {"postgresql"}
    assert wanted["smoke"] == {"postgresql", "valgrind"}
    assert "kubernetes" not in wanted["system"]


def test_no_mark_decides_whether_a_test_runs() -> None:
    assert not [found for found in _lines(r"pytest\.mark\.(\w+)", *FOLDERS) if found.split()[-1] not in MARKS]


def test_a_test_that_waits_fails_if_it_waits_in_vain() -> None:
    """``until`` returns whether what it waits for has happened."""
    dropped = [
        f"{file.relative_to(ROOT)}:{one.lineno}: {test.name}"
        for folder in FOLDERS
        for file in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
        if re.search(r"^ +until\(", text := file.read_text(encoding="utf-8"), re.MULTILINE)
        for test in ast.walk(ast.parse(text))
        if isinstance(test, ast.FunctionDef) and test.name.startswith("test_")
        for one in ast.walk(test)
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Call)
        if isinstance(one.value.func, ast.Name) and one.value.func.id == "until"
    ]
    assert dropped == []


def test_quick_tests_import_nothing_from_slow_ones() -> None:
    assert not _lines(r"^\s*(?:from|import) (tests\.(?:smoke|system|nightly)\S*)", *QUICK, *LIBRARIES)


def test_what_make_test_runs_asks_for_no_server_but_postgresql() -> None:
    assert not _lines(r"\b((?:shared_)?(?:mariadb|rabbitmq|swift)(?:_url|_server)): ", *QUICK, "smoke")
    assert not _lines(r"\b(shared_(?:mariadb|rabbitmq|swift)): ", *QUICK, "smoke")


def test_what_a_nightly_part_runs_beside_its_tests_exists() -> None:
    for file in (ROOT / "tests/nightly").glob("*/commands"):
        for line in file.read_text().splitlines():
            python, module, name, *_ = line.split()
            assert (python, module) == ("python", "-m"), file
            assert name == "pytest" or list(ROOT.glob(f"{name.replace('.', '/')}*")), line
