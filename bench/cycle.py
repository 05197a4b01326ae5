"""``cycle``: whole inspections, from the operator's call to a finished node, on a real database.

One api and one worker process; a fleet and its operator in a third. The first round is that of fresh
processes; the figures are the median round's. CPU is that of the service and the database alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from bench.databases import NAMES, Database, database
from bench.field import Plan, Run
from bench.load_process import LoadProcess
from bench.report import Report
from bench.service import Service, service
from bench.usage import cpu_seconds, machine_seconds, memory

LOAD_PROCESS: Final = "simulator and driver"
_MACHINE: Final = "machine"
# Targets: inspections per second, and CPU of one.
LEAST_RATE: Final = {"sqlite": 180, "postgresql": 130, "mariadb": 110}
MOST_CPU_MS: Final = {"sqlite": 6, "postgresql": 8, "mariadb": 9}


class Round(msgspec.Struct, frozen=True):
    """One inspection of every node. ``problems``: none, or the figures are worth nothing.

    ``cpu``: milliseconds per inspection by process. ``other_load``: processors that were busy with
    something else; it should be next to 0.
    """

    run: Run
    cpu: dict[str, float]
    other_load: float
    problems: list[str]

    @property
    def rate(self) -> float:
        return self.run.inspections / self.run.seconds

    @property
    def ours(self) -> float:
        """CPU milliseconds per inspection of the service and its database."""
        return sum(spent for name, spent in self.cpu.items() if name != LOAD_PROCESS)

    @property
    def relative(self) -> float:
        """CPU of ours for each millisecond of the simulator and driver, whose work never changes.

        A busy machine makes both slower, so two versions can be compared by this where it is not quiet.
        """
        return self.ours / self.cpu[LOAD_PROCESS]


class EnrolledFleet(msgspec.Struct, frozen=True):
    """A running service that knows all nodes of the fleet in ``load_process``."""

    place: Path
    database: Database
    service: Service
    load_process: LoadProcess

    def inspect_rounds(self, rounds: int, concurrency: int) -> list[Round]:
        return [self.inspect(concurrency) for _ in range(rounds)]

    def inspect(self, concurrency: int, *, check: bool = True) -> Round:
        """Inspect every node once; measure, then verify."""
        before = self._spent()
        run = self.load_process.do("run", Run, concurrency=concurrency)
        after = self._spent()
        used = {who: after[who] - before[who] for who in after}
        other_load = max(0.0, used.pop(_MACHINE) - sum(used.values())) / run.seconds
        cpu = {who: seconds * 1000 / run.inspections for who, seconds in used.items()}
        wrong = self.load_process.do("verify", list[str]) if check else []
        return Round(run, cpu, other_load, [*run.unfinished, *wrong])

    def _spent(self) -> dict[str, float]:
        spent = self.service.cpu()
        if self.database.pid is not None:
            spent[self.database.name] = cpu_seconds(self.database.pid)
        return {**spent, LOAD_PROCESS: self.load_process.cpu(), _MACHINE: machine_seconds()}


@contextmanager
def enrolled(name: str, plan: Plan, directory: Path, **options: Any) -> Iterator[EnrolledFleet]:
    """Run a service on a new database of the kind ``name``, with all nodes enrolled; ``options``: as of ``service``."""
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, **options) as running,
        enrolled_field(plan, running, place) as load_process,
    ):
        yield EnrolledFleet(place, base, running, load_process)


@contextmanager
def enrolled_field(plan: Plan, running: Service, place: Path) -> Iterator[LoadProcess]:
    """Give the process of a fleet, all of whose nodes are enrolled."""
    planned = msgspec.json.encode(msgspec.structs.replace(plan, url=running.url)).decode()
    with LoadProcess("bench.field", place / "field.log", planned) as load_process:
        if failed := load_process.do("enrol", dict[str, str]):
            raise RuntimeError(f"{len(failed)} nodes could not be enrolled, such as {next(iter(failed.items()))}")
        yield load_process


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """Give a new directory below ``directory``, into which database servers can go too."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-bench-", dir=directory) as name:
        Path(name).chmod(0o711)
        yield Path(name)


def find_median(rounds: Sequence[Round]) -> Round:
    """Return the round with the median rate."""
    return sorted(rounds, key=lambda round_: round_.rate)[(len(rounds) - 1) // 2]


def measure(report: Report, name: str, plan: Plan, directory: Path, rounds: int, concurrency: int) -> None:
    """Inspect all nodes some times on a database of the kind ``name``."""
    with enrolled(name, plan, directory) as fleet:
        base = fleet.database
        size, logged = base.size(), base.logged()
        measured = fleet.inspect_rounds(rounds, concurrency)
        count = rounds * plan.nodes
        size, logged = base.size() - size, base.logged() - logged
        held = ", ".join(f"{name} {memory(role.pid).rss:.0f}" for name, role in fleet.service.roles.items())
        report.wrong([problem for round_ in measured for problem in round_.problems] + fleet.service.faults())
    rows = [
        (one.rate, one.run.callbacks, one.ours, *one.cpu.values(), one.relative, one.other_load) for one in measured
    ]
    columns = ("insp/s", "callback", "CPU ours", *measured[0].cpu, "relative", "other load")
    report.table(columns, rows)
    report.console.print(f"milliseconds: p50 / p99 / max; CPU per inspection. RSS in MB: {held}")
    report.keep(f"cycle {base.name}", measured)
    typical = find_median(measured)
    report.figure("inspections/s", base.name, typical.rate, least=LEAST_RATE[name])
    report.figure("callback p99, ms", base.name, typical.run.callbacks.p99, most=60)
    report.figure("CPU per inspection, ms", base.name, typical.ours, most=MOST_CPU_MS[name])
    report.figure(f"CPU per inspection of {LOAD_PROCESS}, ms", base.name, typical.cpu[LOAD_PROCESS])
    report.figure("KB in the database for each inspection", base.name, size / count / 1000)
    if logged:
        report.figure("KB in the write-ahead log for each inspection", base.name, logged / count / 1000)


@click.command("cycle")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node, one after the other.")
def command(
    context: tuple[Report, Path], databases: tuple[str, ...], nodes: int, concurrency: int, rounds: int
) -> None:
    """Whole inspections: start, boot, callback, hooks, finished."""
    report, directory = context
    for name in databases:
        report.section(f"cycle on {name}: {nodes} nodes, {concurrency} at a time, 40 KB inventories")
        measure(report, name, Plan(nodes=nodes), directory, rounds, concurrency)
