"""``profile``: where one role's CPU time goes, by function and package, per inspection.

A profiler slows everything down, short functions most. So compare a function with itself in another commit; the CPU
time of the role without the profiler is what ``cycle`` says.
"""

from __future__ import annotations

import marshal
import signal
import sys
from collections import defaultdict
from operator import itemgetter
from pathlib import Path
from typing import Final

import click

from bench.cycle import enrolled, scratch
from bench.databases import NAMES
from bench.field import Plan
from bench.profiled import Functions
from bench.report import Report
from bench.service import ROLES, Role

_PROFILED: Final = str(Path(__file__).with_name("profiled.py"))
_PACKAGES: Final = ("site-packages/", "src/", "lib/python3.11/", "lib/")
_CONCURRENCY: Final = 16
_WRITE_SECONDS: Final = 20.0


def measure(role: str, name: str, nodes: int, rounds: int, directory: Path) -> Functions:
    """Return what ``role`` needs per inspection over all rounds on a database of the kind ``name``."""
    roles = [role] if role == "all" else ROLES
    command = [sys.executable, "-P", _PROFILED, str(directory)]
    with enrolled(name, Plan(nodes=nodes), directory, roles=roles, commands={role: command}) as fleet:
        fleet.inspect(_CONCURRENCY)
        first = _read_snapshot(fleet.service.roles[role], directory / "1.profile")
        for _ in range(rounds):
            fleet.inspect(_CONCURRENCY, check=False)
        last = _read_snapshot(fleet.service.roles[role], directory / "2.profile")
    count = nodes * rounds
    functions: Functions = {}
    for where, after in last.items():
        before = first.get(where, (0.0, 0.0, 0.0))
        calls, own, whole = (now - had for now, had in zip(after, before, strict=True))
        functions[where] = (calls / count, own / count, whole / count)
    return functions


def _read_snapshot(role: Role, path: Path) -> Functions:
    role.process.send_signal(signal.SIGUSR1)
    role.wait_until(path.exists, seconds=_WRITE_SECONDS)
    functions: Functions = marshal.loads(path.read_bytes())
    return functions


def _name_place(where: tuple[str, int, str]) -> str:
    path, line, name = where
    if path == "~":  # built in
        return name
    for prefix in _PACKAGES:
        _, inside, rest = path.rpartition(prefix)
        if inside:
            return f"{rest}:{line}:{name}"
    return f"{path}:{line}:{name}"


def _find_package(place: str) -> str:
    """Return the package; of ``ferroscope`` its part, of what is built in the function."""
    parts = place.partition(":")[0].removesuffix(".py").split("/")
    return ".".join(parts[: 2 if parts[0] == "ferroscope" else 1])


@click.command("profile")
@click.pass_obj
@click.argument("role", type=click.Choice(["api", "worker", "all"]))
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--top", default=40, show_default=True, help="How many functions to show.")
def command(context: tuple[Report, Path], role: str, database: str, nodes: int, rounds: int, top: int) -> None:
    """Where the CPU time of a role goes, by function and package."""
    report, directory = context
    report.section(f"profile of {role} on {database}: milliseconds and calls per inspection, under the profiler")
    with scratch(directory) as place:
        functions = measure(role, database, nodes, rounds, place)
    rows: list[tuple[str, float, float, float]] = [
        (_name_place(where), calls, own * 1000, whole * 1000) for where, (calls, own, whole) in functions.items()
    ]
    packages: dict[str, float] = defaultdict(float)
    for name, _, own, _ in rows:
        packages[_find_package(name)] += own
    report.table(("package", "ms"), sorted(packages.items(), key=lambda item: -item[1])[: top // 2])
    for title, column in (("by own time", 2), ("by time with what it calls", 3)):
        report.section(title)
        most = sorted(rows, key=itemgetter(column), reverse=True)[:top]
        report.table(("function", "calls", "own", "with what it calls"), most)
    report.keep("profile", rows)
