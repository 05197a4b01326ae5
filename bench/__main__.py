"""``python -m bench [cycle|reads|start|scale|profile]``; without a name all but the last.

Exit code 1 where anything was wrong with what the service did; with ``--check`` 2 where a target is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench import cycle as cycles
from bench import hot, machine, show
from bench.databases import NAMES
from bench.report import Report

_DIRECTORY: Final = "/var/tmp"

directory_option = click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=_DIRECTORY,
    show_default=True,
    help="Where databases and logs go while it runs; should be on a disk.",
)
save_option = click.option("--save", is_flag=True, help="Keep everything as JSON in bench/results/.")
check_option = click.option("--check", is_flag=True, help="End with code 2 where a target is missed.")
database_option = click.option(
    "--database",
    "databases",
    type=click.Choice(NAMES),
    multiple=True,
    default=NAMES,
    help="May be given several times.",
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
@directory_option
@save_option
@check_option
def main(context: click.Context, directory: Path, save: bool, check: bool) -> None:
    """Measure Ferroscope on this machine."""
    report = Report(machine.look(directory), machine.versions(), Console(width=max(Console().width, 150)))
    context.obj = (report, directory)
    report.head()
    context.call_on_close(lambda: _end(report, context.invoked_subcommand or "all", save=save, check=check))
    if context.invoked_subcommand is None:
        context.invoke(cycle)


@main.command()
@click.pass_obj
@database_option
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node, one after the other.")
@click.option("--size", default=40_000, show_default=True, help="Bytes of an inventory.")
@click.option("--boot", default=0.02, show_default=True, help="Seconds that a machine takes to boot.")
def cycle(
    found: tuple[Report, Path],
    databases: tuple[str, ...] = NAMES,
    nodes: int = 200,
    concurrency: int = 16,
    rounds: int = 3,
    size: int = 40_000,
    boot: float = 0.02,
) -> None:
    """Whole inspections: start, boot, callback, hooks, finished."""
    report, directory = found
    load = cycles.Load(nodes=nodes, concurrency=concurrency, rounds=rounds, size=size, boot=boot, jitter=boot)
    for name in databases:
        report.section(f"cycle on {name}: {nodes} nodes, {concurrency} at a time, {size / 1000:.0f} KB inventories")
        show.cycle(report, cycles.measure(name, load, directory))


@main.command("profile")
@click.pass_obj
@click.argument("role", type=click.Choice(["api", "worker", "all"]))
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--top", default=40, show_default=True, help="How many functions to show.")
def profile(found: tuple[Report, Path], role: str, database: str, nodes: int, rounds: int, top: int) -> None:
    """Where the CPU time of a role goes, by function and by SQL statement."""
    report, directory = found
    report.section(f"profile of {role} on {database}")
    show.profile(report, hot.measure(role, database, cycles.Load(nodes=nodes, rounds=rounds), directory), top)


def _end(report: Report, name: str, *, save: bool, check: bool) -> None:
    report.foot()
    if save:
        report.console.print(f"saved as {report.save(name)}", highlight=False)
    if report.problems:
        sys.exit(1)
    if check and any(figure.met is False for figure in report.figures):
        sys.exit(2)


if __name__ == "__main__":
    main()
