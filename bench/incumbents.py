"""``incumbents``: this tree, ironic-inspector and Ironic, in turns within one run, with one interpreter and one driver.

A turn is a service started anew, with nodes enrolled anew: first as many inspections as there are clients, which do not
count, then rounds over all nodes, until they have taken some seconds. After each round every node is verified.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Final

import click

from bench.cycle import scratch
from bench.figures import Figure
from bench.incumbents_plan import Run
from bench.incumbents_services import OURS, SIDES, Running, Side, differing, environments, install
from bench.incumbents_turns import Measured, Turn
from bench.load_process import LoadProcess, LoadProcessError
from bench.report import Report
from bench.service import ServiceError
from bench.usage import cpu_seconds, machine_seconds
from tests.support.daemons import MissingServerError

# How a service ends that cannot be run, or does not do what it is asked for.
_NOT_RUN: Final = (
    ServiceError,
    MissingServerError,
    LoadProcessError,
    RuntimeError,
    AssertionError,
    OSError,
    subprocess.CalledProcessError,
)


def one_turn(side: Side, nodes: int, clients: int, seconds: float, directory: Path) -> Turn:
    """Start a service, and inspect its nodes until the rounds have taken so many seconds."""
    with (
        scratch(directory) as place,
        side.running(place) as running,
        LoadProcess("bench.incumbents_client", place / "client.log") as client,
    ):
        client.ask(running.plan(nodes), dict[str, Any])
        client.do("enrol", int)
        client.do("run", Run, clients=clients, nodes=min(nodes, clients))
        turn = Turn()
        while turn.seconds < seconds:
            before = _spent(running, client)
            run = client.do("run", Run, clients=clients, nodes=nodes)
            spent = [after - start for start, after in zip(before, _spent(running, client), strict=True)]
            turn.add(run, client.do("verify", dict[str, str]), *spent)
        return turn


def _spent(running: Running, client: LoadProcess) -> tuple[float, float, float]:
    """Return CPU seconds: of the service, of what is beside it, of the whole machine."""
    return running.cpu(), cpu_seconds(running.free) + client.cpu(), machine_seconds()


def measure(
    report: Report, nodes: int, clients: int, seconds: float, turns: int, directory: Path
) -> dict[str, list[Turn]]:
    """Give each service its turns; one that cannot be run has none, and the report says why."""
    found: dict[str, list[Turn]] = {side.name: [] for side in SIDES}
    failed: set[str] = set()
    for number in range(1, turns + 1):
        for side in SIDES:
            if side.name in failed:
                continue
            try:
                turn = one_turn(side, nodes, clients, seconds, directory)
            except _NOT_RUN as error:
                failed.add(side.name)
                report.wrong([f"{side.name} could not be measured: {_failure(error)}"])
                continue
            found[side.name].append(turn)
            report.console.print(f"turn {number}, {side.name}: {turn.rate:.1f}/s, {turn.cpu:.1f} ms", style="dim")
            report.wrong([f"{side.name}: {machine}: {text}" for machine, text in turn.wrong.items()])
    return {name: those for name, those in found.items() if those}


def _failure(error: BaseException) -> str:
    output = getattr(error, "stderr", None) or b""
    return f"{type(error).__name__}: {error} {output.decode(errors='replace')[-2000:]}".strip()


def show(report: Report, measured: Measured) -> None:
    """Show all three, and ours beside theirs."""
    rows = []
    for name, turns in measured.turns.items():
        callbacks = measured.callbacks(name)
        rows.append(
            (
                f"{name} {measured.versions[name]}",
                measured.rate(name),
                " ".join(f"{turn.rate:.1f}" for turn in turns),
                measured.cpu(name),
                f"{callbacks.p50:.0f} / {callbacks.p99:.0f}",
                sum(turn.inspections for turn in turns),
                sum(len(turn.wrong) for turn in turns),
                measured.middle(name, lambda turn: turn.looks / turn.inspections),
                sum(turn.repeated for turn in turns),
                measured.middle(name, lambda turn: 1000 * turn.beside / turn.inspections),
                measured.middle(name, lambda turn: turn.other_load),
            )
        )
    columns = ("service", "insp/s", "turns", "CPU ms", "callback p50 / p99 ms", "inspections", "wrong", "looks each")
    report.table((*columns, "repeated calls", "CPU ms of the driver", "other load"), rows)
    report.keep("incumbents", measured)
    for name in measured.turns:
        if name != OURS.name and OURS.name in measured.turns:
            faster = measured.rate(OURS.name) / measured.rate(name)
            cheaper = measured.cpu(name) / measured.cpu(OURS.name)
            report.found(
                Figure("inspections/s, this tree / the other", name, faster),
                Figure("CPU per inspection, the other / this tree", name, cheaper),
            )


@click.command("incumbents")
@click.pass_obj
@click.option("--nodes", default=60, show_default=True)
@click.option("--clients", default=16, show_default=True, help="Inspections in flight.")
@click.option("--seconds", default=5.0, show_default=True, help="Rounds are repeated until they have taken so long.")
@click.option("--turns", default=2, show_default=True)
def command(found: tuple[Report, Path], nodes: int, clients: int, seconds: float, turns: int) -> None:
    """This tree, ironic-inspector and Ironic in turns; the last two are installed if they are missing."""
    report, directory = found
    report.section(f"incumbents, all on SQLite: {turns} turns, {nodes} nodes, {clients} clients")
    install()
    present = environments()
    if reason := differing(present):
        report.wrong([f"nothing was measured: {reason}"])
        return
    versions = {name: one.version for name, one in present.items()}
    show(report, Measured(versions, measure(report, nodes, clients, seconds, turns, directory)))
