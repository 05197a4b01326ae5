"""``trips``: how often one inspection waits for its database, and for which statements.

A count and not a time, so it is the same on every machine, however busy. It is overheard between the service
and a server of its own; SQLite, which is no server, has none. What the service says while nothing is inspected
(heartbeats, looks for requests) is in it, as far as it falls into that time.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from sqlalchemy import make_url

from bench.cycle import Load, field, one_round, scratch
from bench.databases import database
from bench.figures import Figure
from bench.report import Report
from bench.service import service
from tests.support.wire import Wire

SERVERS: Final = ("postgresql", "mariadb")


class Trips(msgspec.Struct, frozen=True):
    """Per inspection: round trips, statements by kind, and what was said together."""

    database: str
    round_trips: float
    statements: dict[str, float]
    turns: dict[str, float]
    problems: list[str]


def measure(name: str, load: Load, directory: Path) -> Trips:
    """Inspect every node once to warm up, once more to count."""
    with scratch(directory) as place, database(name, place) as base:
        url = make_url(base.url)
        wire = Wire(name, url.port or 0)
        overheard = url.set(port=wire.port).render_as_string(hide_password=False)
        with service(place, overheard) as running, field(running, load, place) as load_process:
            load_process.do("enrol", dict[str, Any])
            one_round(running, base, load_process, load)
            before = wire.overheard()
            round_ = one_round(running, base, load_process, load, check=False)
            said = wire.overheard() - before
        wire.close()
    number = round_.run.inspections
    return Trips(
        database=base.title,
        round_trips=said.round_trips / number,
        statements=_each(said.statements, number),
        turns=_each(said.turns, number),
        problems=round_.problems,
    )


def _each(counted: Counter[str], number: int) -> dict[str, float]:
    return {what: times / number for what, times in counted.most_common()}


def show(report: Report, found: Trips) -> None:
    """Show the statements by kind and the turns that are part of every second inspection at least."""
    report.table(("statements per inspection", ""), [(kind, times) for kind, times in found.statements.items()])
    report.table(("said together", ""), [(turn, times) for turn, times in found.turns.items() if times >= 0.05])
    report.wrong(found.problems)
    report.keep("trips", found)
    report.found(
        Figure("round trips per inspection", found.database, found.round_trips),
        Figure("statements per inspection", found.database, sum(found.statements.values())),
    )


@click.command("trips")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(SERVERS), multiple=True, default=SERVERS)
@click.option("--nodes", default=100, show_default=True)
@click.option("--concurrency", default=16, show_default=True, help="Inspections in flight.")
def command(found: tuple[Report, Path], databases: tuple[str, ...], nodes: int, concurrency: int) -> None:
    """Round trips and statements of one inspection."""
    report, directory = found
    for name in databases:
        report.section(f"trips on {name}: {nodes} nodes, {concurrency} at a time")
        show(report, measure(name, Load(nodes=nodes, concurrency=concurrency), directory))
