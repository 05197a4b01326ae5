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

import msgspec

from bench.databases import Database, database
from bench.field import Plan, Run
from bench.load_process import LoadProcess
from bench.quantiles import middle
from bench.service import Service, service
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
    with (
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url, extra=extra) as running,
        field(running, load, place) as load_process,
    ):
        enrolled = load_process.do("enrol", dict[str, Any])
        if enrolled["failed"]:
            failed = [f"{node}: {why}" for node, why in enrolled["failed"].items()]
            raise RuntimeError(f"{len(failed)} nodes could not be enrolled, such as {failed[0]}")
        size, logged = base.size(), base.logged()
        rounds = [one_round(running, base, load_process, load) for _ in range(load.rounds)]
        return Cycle(
            growth=(base.size() - size) / sum(round_.run.inspections for round_ in rounds),
            logged=(base.logged() - logged) / sum(round_.run.inspections for round_ in rounds),
            database=base.title,
            load=load,
            enrolled_per_second=load.nodes / enrolled["seconds"],
            rounds=rounds,
            memory={name: memory(role.pid) for name, role in running.roles.items()},
            faults=[fault for role in running.roles.values() for fault in role.faults()][:20],
        )


def one_round(running: Service, base: Database, load_process: LoadProcess, load: Load, *, check: bool = True) -> Round:
    """Inspect every node of the fleet once; measure, then verify."""
    before = _spent(running, base, load_process)
    run = load_process.do("run", Run, concurrency=load.concurrency)
    after = _spent(running, base, load_process)
    used = {who: after[who] - before[who] for who in after}
    other_load = max(0.0, used.pop(_MACHINE) - sum(used.values())) / run.seconds
    cpu = {who: seconds * 1000 / run.inspections for who, seconds in used.items()}
    return Round(run, cpu, other_load, [*run.unfinished, *(load_process.do("verify", list[str]) if check else ())])


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


def _spent(running: Service, base: Database, load_process: LoadProcess) -> dict[str, float]:
    spent = running.cpu()
    if base.pid is not None:
        spent[base.name] = cpu_seconds(base.pid)
    return {**spent, LOAD_PROCESS: load_process.cpu(), _MACHINE: machine_seconds()}
