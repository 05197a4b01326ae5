"""Runs the checks and the tests; the Makefile and ``.ci/run`` call it. It sets up what the tests that it runs need.

``check``, ``test`` and ``system`` run more and more (see CONTRIBUTING.md), ``nightly`` the parts in ``tests/nightly``.
A folder's file ``needs`` names the environments of ``tools/setup`` that its tests need; its file ``commands`` has
commands that are run after its tests. Standard library only: nothing is installed yet when it starts.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = ROOT / "tests"
PYTHON: Final = ".venv/bin/python"
REPORTS: Final = ROOT / "build" / "tests"
_SLOWEST: Final = 10
_CORES: Final = len(os.sched_getaffinity(0))
QUICK: Final = ("tests/store", "tests/api", "tests/smoke")
LINT: Final = (
    (".venv/bin/ruff", "check"),
    (".venv/bin/ruff", "format", "--check"),
    (".venv/bin/lint-imports", "--no-logo"),
)
MYPY: Final = (".venv/bin/mypy",)


class FailedError(Exception):
    """A part has failed; what it printed says why."""


class Runner:
    """Runs one part after the other, and remembers what each has taken."""

    def __init__(self) -> None:
        self._took: list[tuple[str, float, float]] = []

    def run(self, name: str, *commands: Iterable[str], beside: Sequence[str] = ()) -> None:
        """Run the commands one after the other, and ``beside`` at the same time; raise ``FailedError``."""
        print(f"== {name}", flush=True)
        began, spent = time.monotonic(), _processor_time()
        companion = subprocess.Popen(beside, cwd=ROOT) if beside else None
        try:
            failed = [
                command for command in map(tuple, commands) if subprocess.run(command, cwd=ROOT, check=False).returncode
            ]
        finally:
            if companion is not None and companion.wait():
                failed = [tuple(beside)]
            self._took.append((name, time.monotonic() - began, _processor_time() - spent))
        if failed:
            raise FailedError(shlex.join(failed[0]))

    def tests(self, name: str, where: Iterable[str], *options: str, jobs: float, beside: Sequence[str] = ()) -> None:
        """Run the tests of these folders; ``jobs`` is the number of processes for each processor."""
        REPORTS.mkdir(parents=True, exist_ok=True)
        report = REPORTS / f"{name.replace('/', '-')}.xml"
        processes = str(max(1, round(jobs * _CORES)))
        command = [
            PYTHON, "-m", "pytest", "--numprocesses", processes, "--dist", "loadfile", "--no-loadscope-reorder",
            f"--junit-xml={report}", *options, *where,
        ]  # fmt: skip
        self.run(name, command, beside=beside)

    def report(self) -> None:
        """Print the slowest tests, and what each part has taken."""
        cases = [
            (float(case.get("time", "0")), f"{case.get('classname', '')}.{case.get('name', '')}")
            for name, _, _ in self._took
            if (report := REPORTS / f"{name.replace('/', '-')}.xml").exists()
            for case in ElementTree.parse(report).iter("testcase")
        ]
        if cases:
            print(f"\nThe {_SLOWEST} slowest tests, in seconds:")
        for seconds, name in sorted(cases, reverse=True)[:_SLOWEST]:
            print(f"  {seconds:7.1f}  {name}")
        print("\nPart                      minutes  processor minutes")
        total = ("all", sum(took for _, took, _ in self._took), sum(spent for _, _, spent in self._took))
        for name, took, spent in (*self._took, total):
            print(f"  {name:22}  {took / 60:7.1f}  {spent / 60:17.1f}")
        sys.stdout.flush()


def _processor_time() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def needs(folder: Path) -> list[str]:
    """Return the environments that the tests in a folder, or in folders within it, need."""
    above = [one for one in folder.parents if one.is_relative_to(TESTS)]
    files = [one / "needs" for one in above] + sorted(folder.rglob("needs") if folder.is_dir() else ())
    return list(dict.fromkeys(word for file in files if file.exists() for word in file.read_text().split()))


def _set_up(runner: Runner, *folders: Path) -> None:
    wanted = dict.fromkeys(["dev", *(name for folder in folders for name in needs(folder))])
    runner.run("set-up", ["tools/setup.sh", *wanted])


def check(runner: Runner) -> None:
    """Check style, types, imports and size, and run the tests that need nothing but ``.venv``."""
    _set_up(runner)
    runner.run("style", *LINT)
    # mypy has one thread: the tests take the other processors.
    runner.tests("fast", ["tests/fast"], "--quiet", jobs=1, beside=MYPY)
    runner.run("budget", [PYTHON, "-m", "tools.budget"])


def test(runner: Runner) -> None:
    """``check``, and the tests of the store and the API, and each role as a process."""
    _set_up(runner, *(ROOT / folder for folder in QUICK))
    check(runner)
    runner.tests("store, api, smoke", QUICK, "--quiet", jobs=1.5)


def system(runner: Runner) -> None:
    """Real processes, clients, BMC emulators and boot hosts; MariaDB's own SQL; and what an inspection costs."""
    _set_up(runner, TESTS / "system")
    runner.tests("system", ["tests/system"], "--quiet", jobs=3)
    runner.tests("mariadb", ["tests/store/sql"], "--quiet", "--databases", "mariadb", jobs=1.5)
    # Instructions are counted, so it does not matter what else the machine does.
    runner.run("gate", [PYTHON, "-m", "bench", "--directory", str(REPORTS), "gate", "--turns", "2"])


def parts() -> list[str]:
    """Return the parts of the nightly run."""
    return sorted(file.parent.name for file in (TESTS / "nightly").glob("*/needs"))


def nightly(runner: Runner, part: str) -> None:
    folder = TESTS / "nightly" / part
    if not (folder / "needs").exists():
        raise FailedError(f"there is no part {part!r} of the nightly tests; there are: {', '.join(parts())}")
    _set_up(runner, folder)
    if next(folder.rglob("test_*.py"), None):
        runner.tests(part, [str(folder.relative_to(ROOT))], "--quiet", jobs=1)
    commands = folder / "commands"
    for line in commands.read_text().splitlines() if commands.exists() else ():
        runner.run(f"{part}: {line}", [PYTHON, *shlex.split(line)[1:]])


def some(runner: Runner, arguments: list[str]) -> None:
    """Run these tests only; the arguments are pytest's."""
    paths = [Path(ROOT, word.partition("::")[0]) for word in arguments]
    _set_up(runner, *(path for path in paths if path.exists() and path.is_relative_to(TESTS)))
    runner.run("tests", [PYTHON, "-m", "pytest", *arguments])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m tools.tests", description=__doc__.partition("\n\n")[0])
    parser.add_argument("what", choices=["check", "test", "system", "nightly"])
    parser.add_argument("part", nargs="*", help="parts of the nightly run; all of them, if none is named")
    parser.add_argument("--only", default="", help="arguments for pytest, such as: tests/fast -k lookup")
    arguments = parser.parse_args()
    runner = Runner()
    failures = []
    try:
        if arguments.only.strip():
            some(runner, shlex.split(arguments.only))
        elif arguments.what == "nightly":
            for part in arguments.part or parts():
                try:
                    nightly(runner, part)
                except FailedError as exc:  # the others can run all the same
                    failures.append(str(exc))
        else:
            {"check": check, "test": test, "system": system}[arguments.what](runner)
    except FailedError as exc:
        failures.append(str(exc))
    runner.report()
    for failure in failures:
        print(f"failed: {failure}", file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
