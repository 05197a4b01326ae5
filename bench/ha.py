"""The commands ``failover``, ``lookup`` and ``scaleout``, and how their raw numbers are laid out."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Final

import click

from bench import failover as failovers
from bench import lookup as finding
from bench import scaleout as scaleouts
from bench.cycle import Load, median_round
from bench.databases import NAMES
from bench.figures import Figure
from bench.report import Report


@click.command("failover")
@click.pass_obj
@click.option(
    "--database",
    "databases",
    type=click.Choice(NAMES),
    multiple=True,
    default=("postgresql", "mariadb"),
    show_default=True,
    help="May be given several times.",
)
@click.option(
    "--profile",
    "profiles",
    type=click.Choice(["default", "fast"]),
    multiple=True,
    default=("default", "fast"),
    show_default=True,
    help="May be given several times.",
)
@click.option("--kills", default=60, show_default=True, help="How often a leader ends in each way.")
@click.option(
    "--way",
    "ways",
    type=click.Choice(failovers.WAYS),
    multiple=True,
    help="How it ends; may be given several times. [default: all, and killed alone in the profile fast]",
)
@click.option("--seed", default=1, show_default=True)
def failover(
    found: tuple[Report, Path],
    databases: tuple[str, ...],
    profiles: tuple[str, ...],
    kills: int,
    ways: tuple[failovers.Way, ...],
    seed: int,
) -> None:
    """From the end of a leader to the first fenced write of its successor."""
    report, directory = found
    for database, profile in itertools.product(databases, profiles):
        report.section(f"failover on {database}, profile {profile}: {kills} of each")
        for way in ways or (failovers.WAYS if profile == "default" else failovers.WAYS[:1]):
            measured = failovers.measure(database, profile, way, kills, directory, seed=seed)
            report.keep(f"failover {database} {profile} {way}", measured)
            raw = " ".join(f"{seconds:.3f}" for seconds in measured.seconds)
            said = f"{way}: {measured.spread} ms (p50 / p99 / max)\n  {raw}"
            report.console.print(said, highlight=False, soft_wrap=True)
            key = f"fail-over, {way}, p99 s" if way != "killed" else f"fail-over, killed, {profile}, p99 s"
            report.found(Figure(key, database, measured.spread.p99 / 1000))


@click.command("lookup")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--small", default=10, show_default=True)
@click.option("--large", default=10_000, show_default=True)
@click.option("--lookups", default=500, show_default=True, help="Of each kind.")
def lookup(found: tuple[Report, Path], databases: tuple[str, ...], small: int, large: int, lookups: int) -> None:
    """Finding the node of a machine that calls back, with few and with many nodes that wait."""
    report, directory = found
    for name in databases:
        report.section(f"lookup on {name}: {small} and {large} nodes wait")
        measured = finding.measure(name, directory, small=small, large=large, lookups=lookups)
        rows = [(kind, few, measured.many[kind], measured.many[kind] / few) for kind, few in measured.few.items()]
        report.table(("looked up by", f"ms, {small} wait", f"ms, {large} wait", "ratio"), rows)
        report.keep("lookup", measured)
        report.found(Figure("lookup with many waiting / with few", measured.database, measured.ratio))


# Of what sessions wait for.
_WAITS: Final = 8


@click.command("scaleout")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="postgresql", show_default=True)
@click.option("--nodes", default=200, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--processes", type=int, multiple=True, default=(1, 2, 4), show_default=True)
@click.option("--apis", default=1, show_default=True, help="Processes of the api.")
def scaleout(
    found: tuple[Report, Path],
    database: str,
    nodes: int,
    concurrency: int,
    rounds: int,
    processes: tuple[int, ...],
    apis: int,
) -> None:
    """Whole inspections with 1, 2 and 4 worker processes."""
    report, directory = found
    report.section(f"scaleout on {database}: {nodes} nodes, {concurrency} at a time, {apis} api")
    load = Load(nodes=nodes, concurrency=concurrency, rounds=rounds)
    measured = scaleouts.measure(database, load, directory, processes=processes, apis=apis)
    rows = []
    for count, cycle in measured.cycles.items():
        typical = median_round(cycle.rounds)
        rates = " ".join(f"{round_.rate:.0f}" for round_ in cycle.rounds)
        spent = ", ".join(f"{name} {value:.1f}" for name, value in typical.cpu.items())
        rows.append((str(count), typical.rate, rates, typical.run.whole, spent, typical.other_load))
        report.found(Figure(f"inspections/s, {count} worker processes", database, typical.rate))
    report.table(("workers", "insp/s", "rounds", "whole, ms", "CPU ms per inspection", "other load"), rows)
    busy = [
        (str(count), what, sessions)
        for count, found_waits in measured.waits.items()
        for what, sessions in list(found_waits.items())[:_WAITS]
    ]
    if busy:
        report.table(("workers", "the server's busy sessions", "mean number"), busy)
    report.keep("scaleout", measured)
    report.wrong(measured.problems)
