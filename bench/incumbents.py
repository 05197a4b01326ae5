"""``incumbents``: this tree, ironic-inspector and Ironic, in turns within one run, with one interpreter and one driver.

Each is started anew on SQLite, with machines that cost it nothing: this tree with the driver ``fake-hardware``;
ironic-inspector beside a Bare Metal API that answers from memory in a process of its own; Ironic, API and conductor in
one process, with fake hardware and its own inspection. All other settings are defaults, but that ironic-inspector
stores what it finds out and does not pause between two starts.

In a turn, nodes are enrolled; first as many inspections as there are clients, which do not count, then rounds over all
nodes, until they have taken some seconds. After each round every node is verified.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import scratch
from bench.databases import database
from bench.incumbents_client import BARE_METAL, INTROSPECTION, Plan, Run
from bench.load_process import LoadProcess
from bench.quantiles import middle, spread
from bench.report import Report
from bench.service import service
from bench.usage import cpu_seconds, machine_seconds
from tests import ROOT
from tests.support.bare_metal import ironic
from tests.support.inspector.service import Inspector

# Ironic's inspection by its own agent, of machines whose boot it does not manage: fake hardware has no such boot.
_AGENT: Final = """\
[DEFAULT]
enabled_inspect_interfaces = agent,fake
[conductor]
node_locked_retry_attempts = 3
[inspector]
require_managed_boot = false
"""
# The interpreter of an environment, and the version of the service there.
_ASK: Final = """\
import os, sys
from importlib.metadata import version
print(os.path.realpath(sys.executable), version(sys.argv[1]))
"""

# A running service, and what tells the CPU seconds of all its processes, and of those that stand in for others.
Running = tuple[Plan, Callable[[], float], Callable[[], float]]


@contextmanager
def run_ours(directory: Path) -> Iterator[Running]:
    """Run api and worker of this tree."""
    with database("sqlite", directory) as base, service(directory, base.url) as running:
        yield Plan(BARE_METAL, running.url, running.url), lambda: sum(running.cpu().values()), lambda: 0.0


@contextmanager
def run_inspector(directory: Path) -> Iterator[Running]:
    """Run ironic-inspector and what it takes for Ironic."""
    with LoadProcess("bench.incumbents_stub", directory / "stub.log") as stub:
        registry = stub.do("address", str)
        running = Inspector(directory, registry)
        try:
            running.wait_answers()
            yield Plan(INTROSPECTION, running.url, registry), partial(cpu_seconds, running.pid), stub.cpu
        finally:
            running.end()


@contextmanager
def run_ironic(directory: Path) -> Iterator[Running]:
    with ironic(directory / "ironic", extra=_AGENT) as running:
        plan = Plan(BARE_METAL, running.url, running.url, {"inspect_interface": "agent"})
        yield plan, partial(cpu_seconds, running.pid), lambda: 0.0


class Side(msgspec.Struct, frozen=True):
    """One of those that are compared: ``environment`` is the folder of its virtual environment."""

    name: str
    environment: str
    run: Callable[[Path], AbstractContextManager[Running]]

    @property
    def python(self) -> str:
        return str(ROOT / self.environment / "bin" / "python") if self.environment else sys.executable


OURS: Final = Side("ferroscope", "", run_ours)
SIDES: Final = (
    OURS,
    Side("ironic-inspector", ".inspector-venv", run_inspector),
    Side("ironic", ".ironic-venv", run_ironic),
)


class Turn(msgspec.Struct):
    """The rounds of one service between its start and its end; CPU in seconds.

    ``others``: the CPU time of what is neither the service nor its clients, nor stands in for Ironic.
    """

    inspections: int = 0
    seconds: float = 0.0
    spent: float = 0.0
    others: float = 0.0
    looks: int = 0
    callbacks: list[float] = []
    wrong: list[str] = []

    @property
    def rate(self) -> float:
        return self.inspections / self.seconds

    @property
    def cpu(self) -> float:
        """CPU milliseconds of the service per inspection."""
        return 1000 * self.spent / self.inspections


def measure_turn(side: Side, nodes: int, clients: int, seconds: float, directory: Path) -> Turn:
    """Start a service, and inspect its nodes until the rounds have taken so many seconds."""
    with scratch(directory) as place, side.run(place) as (plan, read_cpu, read_free_cpu):
        planned = msgspec.json.encode(plan).decode()
        with LoadProcess("bench.incumbents_client", place / "client.log", planned) as client:
            client.do("enrol", type(None), nodes=nodes)
            client.do("run", Run, clients=clients, nodes=min(nodes, clients))
            turn = Turn()
            while turn.seconds < seconds:
                spent, free, machine = read_cpu(), read_free_cpu() + client.cpu(), machine_seconds()
                run = client.do("run", Run, clients=clients, nodes=nodes)
                spent, free = read_cpu() - spent, read_free_cpu() + client.cpu() - free
                turn.others += max(0.0, machine_seconds() - machine - spent - free)
                turn.spent += spent
                turn.inspections += run.inspections
                turn.seconds += run.seconds
                turn.looks += run.looks
                turn.callbacks += run.callbacks
                turn.wrong += run.wrong + client.do("verify", list[str])
            return turn


def find_environments() -> dict[str, str]:
    """Return interpreter and version of each side by name; install what is missing, in the versions of the tests."""
    missing = [side.environment.strip(".").removesuffix("-venv") for side in SIDES if not Path(side.python).exists()]
    if missing:
        subprocess.run([ROOT / "tools" / "setup.sh", *missing], check=True)
    return {
        side.name: subprocess.run(
            [side.python, "-c", _ASK, side.name], capture_output=True, text=True, check=True
        ).stdout.strip()
        for side in SIDES
    }


@click.command("incumbents")
@click.pass_obj
@click.option("--nodes", default=60, show_default=True)
@click.option("--clients", default=16, show_default=True, help="Inspections in flight.")
@click.option("--seconds", default=5.0, show_default=True, help="Rounds are repeated until they have taken so long.")
@click.option("--turns", default=2, show_default=True)
def command(context: tuple[Report, Path], nodes: int, clients: int, seconds: float, turns: int) -> None:
    """This tree, ironic-inspector and Ironic in turns; the last two are installed if they are missing."""
    report, directory = context
    report.section(f"incumbents, all on SQLite: {turns} turns, {nodes} nodes, {clients} clients")
    environments = find_environments()
    if len({text.split()[0] for text in environments.values()}) > 1:
        report.wrong([
            f"nothing was measured: the interpreters differ ({environments}), and one may take 1.4 times as long as "
            "another for the same work: remove the environments of the others and call tools/setup.sh venv inspector "
            "ironic, with PYTHON set to one interpreter"
        ])  # fmt: skip
        return
    measured: dict[str, list[Turn]] = {side.name: [] for side in SIDES}
    for _ in range(turns):
        for side in SIDES:
            measured[side.name].append(measure_turn(side, nodes, clients, seconds, directory))
    rows = []
    for name, own in measured.items():
        callbacks = spread([took for turn in own for took in turn.callbacks])
        rates = " ".join(f"{turn.rate:.1f}" for turn in own)
        looks = middle([turn.looks / turn.inspections for turn in own])
        others = middle([turn.others / turn.seconds for turn in own])
        rows.append((f"{name} {environments[name].split()[1]}", _rate(own), rates, _cpu(own), callbacks, looks, others))
        report.wrong([f"{name}: {text}" for turn in own for text in turn.wrong])
    columns = ("service", "insp/s", "turns", "CPU ms", "callback ms, p50 / p99 / max", "looks each", "other load")
    report.table(columns, rows)
    report.keep("incumbents", measured)
    ours = measured[OURS.name]
    for name, theirs in measured.items():
        if name != OURS.name:
            report.figure("inspections/s, this tree / the other", name, _rate(ours) / _rate(theirs))
            report.figure("CPU per inspection, the other / this tree", name, _cpu(theirs) / _cpu(ours))


def _rate(turns: list[Turn]) -> float:
    return middle([turn.rate for turn in turns])


def _cpu(turns: list[Turn]) -> float:
    return middle([turn.cpu for turn in turns])
