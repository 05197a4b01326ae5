"""``profile``: where one role's CPU time goes, by function and by SQL statement, per inspection.

A profiler slows everything down, short functions most. So the role runs three times: without a profiler, with the CPU
time of its functions measured, and with their calls and returns counted. Each call and return is assumed to cost the
same, and that cost is subtracted. The rest adds up to the CPU time of the role without the profiler.
"""

from __future__ import annotations

import marshal
import signal
import sys
import time
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.cycle import Load, enrolled, scratch
from bench.databases import NAMES
from bench.profiled import Stats
from bench.report import Report
from bench.service import ROLES, Role, ServiceError, executable

_PROFILED: Final = str(Path(__file__).with_name("profiled.py"))
_PACKAGES: Final = ("site-packages/", "src/", "lib/python3.11/", "lib/")
_NOTHING: Final[Any] = (0, 0, 0.0, 0.0, {})


class Spot(msgspec.Struct, frozen=True):
    """One function; milliseconds and calls per inspection. ``whole`` counts what it calls, too."""

    where: str
    calls: float
    own: float
    whole: float


class Statement(msgspec.Struct, frozen=True):
    """One SQL statement, per inspection; ``waited``: milliseconds until the database had answered."""

    text: str
    count: float
    waited: float


class Profile(msgspec.Struct, frozen=True):
    """``cpu``: milliseconds per inspection of the role without the profiler; ``slower``: how much it was with it."""

    role: str
    database: str
    cpu: float
    slower: float
    spots: list[Spot]
    statements: list[Statement]

    def by_package(self) -> dict[str, float]:
        """Return own time by package; of ``ferroscope`` by its parts, of what is built in by function."""
        found: dict[str, float] = {}
        for spot in self.spots:
            package = spot.where if spot.where.startswith("<") else _package(spot.where.partition(":")[0])
            found[package] = found.get(package, 0.0) + spot.own
        return found


def measure(role: str, name: str, load: Load, directory: Path) -> Profile:
    """Profile ``role`` over all rounds of ``load`` on a database of the kind ``name``."""
    plain = _run(role, name, load, directory, None)
    slow = _run(role, name, load, directory, "cpu")
    counted = _run(role, name, load, directory, "events").stats
    inspections = load.nodes * load.rounds
    each = max(0.0, _total(slow.stats) - plain.cpu * inspections / 1000) / _total(counted)
    return Profile(
        role=role,
        database=name,
        cpu=plain.cpu,
        slower=slow.cpu / plain.cpu,
        spots=[
            _spot(where, numbers, counted.get(where, _NOTHING), each, inspections)
            for where, numbers in slow.stats.items()
        ],
        statements=[
            Statement(" ".join(text.split()), count / inspections, seconds * 1000 / inspections)
            for text, (count, seconds) in slow.statements.items()
            if count
        ],
    )


class _Result(msgspec.Struct):
    cpu: float
    stats: Stats
    statements: dict[str, tuple[float, float]]


def _total(stats: Stats) -> float:
    return sum(numbers[2] for numbers in stats.values())


def _run(role: str, name: str, load: Load, directory: Path, clock: str | None) -> _Result:
    roles = [role] if role == "all" else ROLES
    with scratch(directory) as place:
        command = [sys.executable, "-P", _PROFILED, str(place), clock] if clock else [executable()]
        with enrolled(name, load, directory, roles=roles, commands={role: command}) as fleet:
            process = fleet.service.roles[role]
            fleet.inspect()
            first = _snapshot(process, place, 1) if clock else ({}, {})
            rounds = [fleet.inspect(check=False) for _ in range(load.rounds)]
            last = _snapshot(process, place, 2) if clock else ({}, {})
        cpu = sum(round_.cpu[role] for round_ in rounds) / len(rounds)
        return _Result(cpu, *_between(first, last))


def _snapshot(role: Role, place: Path, number: int) -> tuple[Stats, dict[str, list[float]]]:
    role.process.send_signal(signal.SIGUSR1)
    path = place / f"{number}.profile"
    deadline = time.monotonic() + 20
    while not path.exists():
        if time.monotonic() > deadline:
            raise ServiceError(f"{role.name} wrote no profile:\n{role.tail()}")
        time.sleep(0.05)
    stats, statements = marshal.loads(path.read_bytes())
    return stats, msgspec.json.decode(statements)


def _between(first: Any, last: Any) -> tuple[Stats, dict[str, tuple[float, float]]]:
    stats: Stats = {}
    for where, after in last[0].items():
        before = first[0].get(where, _NOTHING)
        stats[where] = (after[0] - before[0], after[1] - before[1], after[2] - before[2], after[3] - before[3], {})
    statements = {}
    for text, (count, seconds) in last[1].items():
        before = first[1].get(text, (0, 0.0))
        statements[text] = (count - before[0], seconds - before[1])
    return stats, statements


def _spot(where: Any, numbers: Any, events: Any, each: float, inspections: int) -> Spot:
    path, line, name = where
    place = name if path == "~" else f"{_short(path)}:{line}:{name}"
    own, whole = (1000 * (numbers[at] - each * events[at]) / inspections for at in (2, 3))
    return Spot(place, numbers[1] / inspections, own, whole)


def _package(path: str) -> str:
    parts = path.removesuffix(".py").split("/")
    depth = 3 if parts[:2] == ["ferroscope", "adapters"] else 2 if parts[0] == "ferroscope" else 1
    return ".".join(parts[:depth])


def _short(path: str) -> str:
    for prefix in _PACKAGES:
        _, found, rest = path.rpartition(prefix)
        if found:
            return rest
    return path


def show(report: Report, found: Profile, top: int) -> None:
    """Show the functions and statements that cost the most."""
    report.console.print(
        f"{found.role} on {found.database}: {found.cpu:.2f} ms of CPU per inspection, {found.slower:.1f} times that "
        "under the profiler, whose cost is taken off below; milliseconds and calls per inspection",
        highlight=False,
    )
    report.section("by own time of packages")
    packages = sorted(found.by_package().items(), key=lambda item: -item[1])[: top // 2]
    report.table(("package", "ms"), packages)
    columns = ("function", "calls", "own", "with what it calls")
    for title, key in (("by own time", "own"), ("by time with what it calls", "whole")):
        report.section(title)
        spots = sorted(found.spots, key=lambda spot: -getattr(spot, key))[:top]
        report.table(columns, [(spot.where, spot.calls, spot.own, spot.whole) for spot in spots])
    report.section("statements, waited in the client under the profiler")
    statements = sorted(found.statements, key=lambda statement: -statement.waited)
    report.table(("statement", "count", "ms"), [(one.text[:110], one.count, one.waited) for one in statements[:top]])
    everything = sum(statement.count for statement in statements)
    report.console.print(f"{everything:.1f} statements per inspection", highlight=False)
    report.keep("profile", found)


@click.command("profile")
@click.pass_obj
@click.argument("role", type=click.Choice(["api", "worker", "all"]))
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--top", default=40, show_default=True, help="How many functions to show.")
def command(found: tuple[Report, Path], role: str, database: str, nodes: int, rounds: int, top: int) -> None:
    """Where the CPU time of a role goes, by function and by SQL statement."""
    report, directory = found
    report.section(f"profile of {role} on {database}")
    show(report, measure(role, database, Load(nodes=nodes, rounds=rounds), directory), top)
