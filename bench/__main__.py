"""``python -m bench [PART]``: ``--help`` lists the parts; without one ``cycle``, ``reads``, ``scale`` and ``site``.

Exit code 1 where anything was wrong with what the service did; with ``--check`` 2 where a target is missed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click
from rich.console import Console

from bench import against, attached, dead_nodes, machine, show, watched
from bench import cycle as cycles
from bench import gate as gates
from bench import hostile as hostiles
from bench import incumbents as side_by_side
from bench import pages as paging
from bench import profile as profiles
from bench import reads as readings
from bench import scale as scales
from bench import search as searches
from bench import site as sites
from bench import trace as traces
from bench.databases import NAMES
from bench.report import Report
from bench.service import lines

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

one_database_option = click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
@directory_option
@save_option
@check_option
def main(context: click.Context, directory: Path, save: bool, check: bool) -> None:
    """Measure Ferroscope on this machine."""
    machine.alone(directory)
    report = Report(machine.look(directory), machine.versions(), Console(width=max(Console().width, 175)))
    context.obj = (report, directory)
    report.head()
    context.call_on_close(lambda: _end(report, context.invoked_subcommand or "all", save=save, check=check))
    if context.invoked_subcommand is None:
        for command in (cycle, reads, scale, sites.command):
            context.invoke(command)


@main.command()
@click.pass_obj
@database_option
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each node, one after the other.")
@click.option("--size", default=40_000, show_default=True, help="Bytes of an inventory.")
@click.option("--boot", default=0.02, show_default=True, help="Seconds that a machine takes to boot.")
@click.option(
    "--set", "options", multiple=True, metavar="SECTION.OPTION=VALUE", help="Configure the service otherwise."
)
def cycle(
    found: tuple[Report, Path],
    databases: tuple[str, ...] = NAMES,
    nodes: int = 200,
    concurrency: int = 16,
    rounds: int = 3,
    size: int = 40_000,
    boot: float = 0.02,
    options: tuple[str, ...] = (),
) -> None:
    """Whole inspections: start, boot, callback, hooks, finished."""
    report, directory = found
    load = cycles.Load(nodes=nodes, concurrency=concurrency, rounds=rounds, size=size, boot=boot, jitter=boot)
    for name in databases:
        report.section(f"cycle on {name}: {nodes} nodes, {concurrency} at a time, {size / 1000:.0f} KB inventories")
        show.cycle(report, cycles.measure(name, load, directory, extra=lines(options)))


@main.command()
@click.pass_obj
@one_database_option
@click.option("--nodes", default=200, show_default=True, help="Inspected nodes to read of.")
@click.option("--seconds", default=3.0, show_default=True, help="How long for each kind and number of connections.")
def reads(found: tuple[Report, Path], database: str = "sqlite", nodes: int = 200, seconds: float = 3.0) -> None:
    """GETs of inventories, nodes and lists."""
    report, directory = found
    report.section(f"reads on {database}: {nodes} inspected nodes")
    show.reads(report, readings.measure(database, directory, nodes=nodes, seconds=seconds))


@main.command()
@click.pass_obj
@database_option
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=5, show_default=True, help="How often each query is asked.")
def search(found: tuple[Report, Path], databases: tuple[str, ...] = NAMES, nodes: int = 10_000, tries: int = 5) -> None:
    """Searches over the hardware of many nodes."""
    report, directory = found
    for name in databases:
        report.section(f"search on {name}: {nodes} nodes")
        show.search(report, searches.measure(name, directory, nodes=nodes, tries=tries))


@main.command()
@click.pass_obj
@one_database_option
@click.option("--nodes", default=10_000, show_default=True)
@click.option("--tries", default=10, show_default=True, help="How often each page is requested, after the first time.")
def pages(found: tuple[Report, Path], database: str = "sqlite", nodes: int = 10_000, tries: int = 10) -> None:
    """The web page with many nodes."""
    report, directory = found
    report.section(f"pages on {database}: {nodes} nodes")
    show.pages(report, paging.measure(database, directory, nodes=nodes, tries=tries))


@main.command()
@click.pass_obj
@one_database_option
@click.option("--small", default=100, show_default=True)
@click.option("--large", default=10_000, show_default=True)
@click.option("--nodes", default=50, show_default=True, help="Nodes that are inspected.")
@click.option("--rounds", default=3, show_default=True, help="Inspections of each of them in one turn.")
@click.option("--turns", default=2, show_default=True, help="How often each size has its turn.")
@click.option("--data/--no-data", default=True, help="Whether the other nodes have been inspected before.")
def scale(
    found: tuple[Report, Path],
    database: str = "sqlite",
    small: int = 100,
    large: int = 10_000,
    nodes: int = 50,
    rounds: int = 3,
    turns: int = 2,
    data: bool = True,
) -> None:
    """The cost of an inspection with few and with many enrolled nodes."""
    report, directory = found
    report.section(f"scale on {database}: {nodes} of {small} and of {large} nodes")
    options = {"small": small, "large": large, "nodes": nodes, "rounds": rounds, "turns": turns}
    show.scale(report, scales.measure(database, directory, data=data, **options))


@main.command("profile")
@click.pass_obj
@click.argument("role", type=click.Choice(["api", "worker", "all"]))
@one_database_option
@click.option("--nodes", default=200, show_default=True)
@click.option("--rounds", default=2, show_default=True)
@click.option("--top", default=40, show_default=True, help="How many functions to show.")
def profile(found: tuple[Report, Path], role: str, database: str, nodes: int, rounds: int, top: int) -> None:
    """Where the CPU time of a role goes, by function and by SQL statement."""
    report, directory = found
    report.section(f"profile of {role} on {database}")
    show.profile(report, profiles.measure(role, database, cycles.Load(nodes=nodes, rounds=rounds), directory), top)


main.add_command(against.against)
main.add_command(attached.run)
main.add_command(gates.gate)
main.add_command(side_by_side.command)
main.add_command(hostiles.command)
main.add_command(sites.command)
main.add_command(traces.command)
main.add_command(dead_nodes.command)
main.add_command(watched.command)


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
