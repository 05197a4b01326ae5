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
from bench.figures import Figure
from bench.load_process import LoadProcess
from bench.quantiles import middle
from bench.report import Report
from bench.service import Service, lines, service
from bench.usage import Memory, cpu_seconds, machine_seconds, memory

LOAD_PROCESS: Final = "simulator and driver"
_MACHINE: Final = "machine"


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the service: ``size`` bytes of inventory, ``boot`` ± ``jitter`` seconds of booting.

    Machines with ``special`` names that never call back are for bursts; rounds leave them out.
    """

    nodes: int = 200
    concurrency: int = 16
    rounds: int = 3
    size: int = 40_000
    boot: float = 0.02
    jitter: float = 0.02
    first: int = 1
    special: tuple[str, ...] = ()


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


class Cycle(msgspec.Struct, frozen=True):
    """All rounds on one database, which has grown by ``growth`` bytes with each inspection, and logged ``logged``."""

    database: str
    load: Load
    enrolled_per_second: float
    rounds: list[Round]
    memory: dict[str, Memory]
    faults: list[str]
    growth: float = 0.0
    logged: float = 0.0

    @property
    def problems(self) -> list[str]:
        return [*(problem for round_ in self.rounds for problem in round_.problems), *self.faults]


def measure(
    name: str,
    load: Load,
    directory: Path,
    *,
    extra: str = "",
) -> Cycle:
    """Run the load on a database of the kind ``name``; ``extra``: lines of configuration."""
    with enrolled(name, load, directory, extra=extra) as fleet:
        base = fleet.database
        size, logged = base.size(), base.logged()
        rounds = fleet.inspect_rounds()
        return Cycle(
            growth=(base.size() - size) / sum(round_.run.inspections for round_ in rounds),
            logged=(base.logged() - logged) / sum(round_.run.inspections for round_ in rounds),
            database=base.title,
            load=load,
            enrolled_per_second=load.nodes / fleet.enrolling_seconds,
            rounds=rounds,
            memory={name: memory(role.pid) for name, role in fleet.service.roles.items()},
            faults=fleet.service.faults(),
        )


class EnrolledFleet(msgspec.Struct, frozen=True):
    """A running service that knows all nodes of the fleet in ``load_process``."""

    load: Load
    place: Path
    database: Database
    service: Service
    load_process: LoadProcess
    enrolling_seconds: float

    def inspect_rounds(self) -> list[Round]:
        return [self.inspect() for _ in range(self.load.rounds)]

    def inspect(self, *, check: bool = True) -> Round:
        """Inspect every node once; measure, then verify."""
        before = self._spent()
        run = self.load_process.do("run", Run, concurrency=self.load.concurrency)
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
def enrolled(name: str, load: Load, directory: Path, **options: Any) -> Iterator[EnrolledFleet]:
    """Run a service on a new database of the kind ``name``, with all nodes enrolled; ``options``: as of ``service``."""
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, **options) as running,
        field(running, load, place) as load_process,
    ):
        done = load_process.do("enrol", dict[str, Any])
        if done["failed"]:
            failed = [f"{node}: {why}" for node, why in done["failed"].items()]
            raise RuntimeError(f"{len(failed)} nodes could not be enrolled, such as {failed[0]}")
        yield EnrolledFleet(load, place, base, running, load_process, done["seconds"])


@contextmanager
def field(running: Service, load: Load, place: Path) -> Iterator[LoadProcess]:
    """Give the load process, with its fleet running."""
    with LoadProcess("bench.field", place / "field.log") as load_process:
        plan = Plan(
            url=running.url,
            nodes=load.nodes,
            first=load.first,
            size=load.size,
            boot=load.boot,
            jitter=load.jitter,
            special=load.special,
        )
        load_process.ask(plan, dict[str, Any])
        yield load_process


@contextmanager
def scratch(directory: Path) -> Iterator[Path]:
    """Give a new directory below ``directory``, into which database servers can go too."""
    with tempfile.TemporaryDirectory(prefix="ferroscope-bench-", dir=directory) as name:
        Path(name).chmod(0o711)
        yield Path(name)


def median_round(rounds: Sequence[Round]) -> Round:
    """Return the round with the median rate."""
    return sorted(rounds, key=lambda round_: round_.rate)[(len(rounds) - 1) // 2]


def median_slice(rounds: Sequence[Round]) -> float:
    """Return the median rate of all slices of all rounds."""
    return middle([rate for round_ in rounds for rate in round_.run.slices])


def show(report: Report, found: Cycle) -> None:
    """Show a cycle round by round; its figures are the median round's."""
    processes = list(found.rounds[0].cpu)
    columns = ("", "insp/s", "callback", "PUT", "whole", "CPU ours", *processes, "relative", "looks", "other load")
    rows = [
        (
            str(number),
            round_.rate,
            round_.run.callbacks,
            round_.run.starts,
            round_.run.whole,
            round_.ours,
            *(round_.cpu[name] for name in processes),
            round_.relative,
            round_.run.looks,
            round_.other_load,
        )
        for number, round_ in enumerate(found.rounds, 1)
    ]
    report.table(columns, rows)
    report.console.print("milliseconds: p50 / p99 / max; CPU per inspection. Slices, inspections/s:", highlight=False)
    for number, round_ in enumerate(found.rounds, 1):
        report.console.print(f"  {number}: {' '.join(f'{rate:.0f}' for rate in round_.run.slices)}", highlight=False)
    memories = ", ".join(f"{name} {held.rss:.0f} ({held.pss:.0f})" for name, held in found.memory.items())
    report.console.print(
        f"enrolled {found.enrolled_per_second:.0f} nodes/s; RSS (PSS) in MB: {memories}", highlight=False
    )
    report.wrong(found.problems)
    report.keep("cycle", found)
    typical = median_round(found.rounds)
    report.found(
        Figure("inspections/s", found.database, typical.rate),
        Figure("inspections/s, median slice", found.database, median_slice(found.rounds)),
        Figure("callback p99, ms", found.database, typical.run.callbacks.p99),
        Figure("CPU per inspection, ms", found.database, typical.ours),
        Figure(f"CPU per inspection of {LOAD_PROCESS}, ms", found.database, typical.cpu[LOAD_PROCESS]),
        Figure("KB in the database for each inspection", found.database, found.growth / 1000),
    )
    if found.logged:
        report.found(Figure("KB in the write-ahead log for each inspection", found.database, found.logged / 1000))


@click.command("cycle")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node, one after the other.")
@click.option("--size", default=40_000, show_default=True, help="Bytes of an inventory.")
@click.option("--boot", default=0.02, show_default=True, help="Seconds that a machine takes to boot.")
@click.option(
    "--set", "options", multiple=True, metavar="SECTION.OPTION=VALUE", help="Configure the service otherwise."
)
def command(
    found: tuple[Report, Path],
    databases: tuple[str, ...],
    nodes: int,
    concurrency: int,
    rounds: int,
    size: int,
    boot: float,
    options: tuple[str, ...],
) -> None:
    """Whole inspections: start, boot, callback, hooks, finished."""
    report, directory = found
    load = Load(nodes=nodes, concurrency=concurrency, rounds=rounds, size=size, boot=boot, jitter=boot)
    for name in databases:
        report.section(f"cycle on {name}: {nodes} nodes, {concurrency} at a time, {size / 1000:.0f} KB inventories")
        show(report, measure(name, load, directory, extra=lines(options)))
