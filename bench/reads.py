"""``reads``: how many GETs a second one api process answers, over 1, 4 and 8 kept connections.

Inventories are of nodes that were inspected before, each read in turn; the client is a process of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from bench.cycle import Load, field, one_round, scratch
from bench.databases import database
from bench.load_process import LoadProcess
from bench.reader import Order, Reading
from bench.service import service
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
        scratch(directory) as place,
        database(name, place) as base,
        service(place, base.url) as running,
        field(running, load, place) as load_process,
        LoadProcess("bench.reader", place / "reader.log") as reader,
    ):
        load_process.do("enrol", dict[str, Any])
        problems = one_round(running, base, load_process, load).problems
        uuids = load_process.do("uuids", list[str])
        reads = []
        for what, paths in _kinds(uuids).items():
            for connections in CONNECTIONS:
                before = cpu_seconds(running.roles["api"].pid) + cpu_seconds(base.pid)
                host = running.url.removeprefix("http://")
                order = Order(host, paths, connections, seconds)
                reading = reader.ask(order, Reading)
                after = cpu_seconds(running.roles["api"].pid) + cpu_seconds(base.pid)
                answered = reading.rate * (order.seconds + order.warm)
                reads.append(Read(what, reading, (after - before) * 1000 / answered))
                if reading.errors:
                    problems.append(f"{reading.errors} errors from {what} over {connections} connections")
        return Reads(base.title, reads, problems)


def _kinds(uuids: list[str]) -> dict[str, list[str]]:
    return {
        "GET inventory": [f"/v1/nodes/{uuid}/inventory" for uuid in uuids],
        "GET node": [f"/v1/nodes/{uuid}" for uuid in uuids],
        "GET list of 50": ["/v1/nodes?limit=50"],
    }
