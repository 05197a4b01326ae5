"""``reads``: how many GETs a second one api process answers, over 1, 4 and 8 kept connections.

Inventories are of nodes that were inspected before, each read in turn; the client is a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from bench.cycle import Load, enrolled
from bench.databases import NAMES
from bench.figures import Figure
from bench.load_process import LoadProcess
from bench.reader import Order, Reading
from bench.report import Report
from bench.usage import cpu_seconds

CONNECTIONS: Final = (1, 4, 8)


class Read(msgspec.Struct, frozen=True):
    """One kind of GET over so many connections; ``cpu``: milliseconds of the api (and database) for each."""

    what: str
    reading: Reading
    cpu: float


class Reads(msgspec.Struct, frozen=True):
    """All kinds on one database."""

    database: str
    reads: list[Read]
    problems: list[str]

    def best(self, what: str) -> float:
        """Return the highest rate of one kind."""
        return max(read.reading.rate for read in self.reads if read.what == what)


def measure(name: str, directory: Path, *, nodes: int, seconds: float) -> Reads:
    """Read from a service on a database of the kind ``name`` with ``nodes`` inspected nodes."""
    load = Load(nodes=nodes, rounds=1)
    with (
        enrolled(name, load, directory) as fleet,
        LoadProcess("bench.reader", fleet.place / "reader.log") as reader,
    ):
        problems = fleet.inspect().problems
        uuids, host = fleet.load_process.do("uuids", list[str]), fleet.service.url.removeprefix("http://")
        pids = fleet.service.roles["api"].pid, fleet.database.pid
        reads = []
        for what, paths in _kinds(uuids).items():
            for connections in CONNECTIONS:
                before = sum(map(cpu_seconds, pids))
                order = Order(host, paths, connections, seconds)
                reading = reader.ask(order, Reading)
                after = sum(map(cpu_seconds, pids))
                answered = reading.rate * (order.seconds + order.warm)
                reads.append(Read(what, reading, (after - before) * 1000 / answered))
                if reading.errors:
                    problems.append(f"{reading.errors} errors from {what} over {connections} connections")
        return Reads(fleet.database.title, reads, problems)


def _kinds(uuids: list[str]) -> dict[str, list[str]]:
    return {
        "GET inventory": [f"/v1/nodes/{uuid}/inventory" for uuid in uuids],
        "GET node": [f"/v1/nodes/{uuid}" for uuid in uuids],
        "GET list of 50": ["/v1/nodes?limit=50"],
    }


def show(report: Report, found: Reads) -> None:
    """Show reads; their figures are the best number of connections'."""
    rows = [
        (
            read.what,
            read.reading.connections,
            read.reading.rate,
            read.reading.latency,
            read.cpu,
            read.reading.bytes_each / 1000,
        )
        for read in found.reads
    ]
    report.table(("", "connections", "per s", "ms p50 / p99 / max", "CPU ms each", "KB each"), rows)
    report.wrong(found.problems)
    report.keep("reads", found)
    for what in dict.fromkeys(read.what for read in found.reads):
        report.found(Figure(f"{what}/s", found.database, found.best(what)))


@click.command("reads")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=200, show_default=True, help="Inspected nodes to read of.")
@click.option("--seconds", default=3.0, show_default=True, help="How long for each kind and number of connections.")
def command(found: tuple[Report, Path], database: str, nodes: int, seconds: float) -> None:
    """GETs of inventories, nodes and lists."""
    report, directory = found
    report.section(f"reads on {database}: {nodes} inspected nodes")
    show(report, measure(database, directory, nodes=nodes, seconds=seconds))
