"""``reads``: how many GETs a second one api process answers, over 1, 4 and 8 kept connections.

Inventories are of nodes that were inspected before, each read in turn. The clients are a process of their own:
``python -m bench.reads``.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.client import Api
from bench.cycle import enrolled
from bench.databases import NAMES
from bench.field import Plan
from bench.load_process import LoadProcess, serve
from bench.quantiles import Spread, spread
from bench.report import Report
from bench.usage import cpu_seconds

CONNECTIONS: Final = (1, 4, 8)
_CONCURRENCY: Final = 16
LEAST_RATE: Final = {"GET inventory": 1500.0}


class Reading(msgspec.Struct, frozen=True):
    """``errors``: answers other than 200."""

    rate: float
    latency: Spread
    errors: int


def read(url: str, paths: list[str], connections: int, seconds: float) -> Reading:
    """Read ``paths`` in turn; each connection sends its next request when it has its answer."""
    return asyncio.run(_read(Api(url), paths, connections, seconds))


async def _read(api: Api, paths: list[str], connections: int, seconds: float) -> Reading:
    waiting = itertools.cycle(paths)
    latencies, errors = list[float](), 0
    end = time.perf_counter() + seconds

    async def connection() -> None:
        nonlocal errors
        while (began := time.perf_counter()) < end:
            answer = await api.call("GET", next(waiting))
            latencies.append(time.perf_counter() - began)
            errors += answer.status != 200

    await asyncio.gather(*(connection() for _ in range(connections)))
    api.close()
    return Reading(len(latencies) / seconds, spread(latencies), errors)


def measure(report: Report, name: str, directory: Path, *, nodes: int, seconds: float) -> None:
    """Read from a service on a database of the kind ``name`` with ``nodes`` inspected nodes."""
    with (
        enrolled(name, Plan(nodes=nodes), directory) as fleet,
        LoadProcess("bench.reads", fleet.place / "reader.log") as reader,
    ):
        report.wrong(fleet.inspect(_CONCURRENCY).problems)
        uuids, url = fleet.load_process.do("uuids", list[str]), fleet.service.url
        kinds = {
            "GET inventory": [f"/v1/nodes/{uuid}/inventory" for uuid in uuids],
            "GET node": [f"/v1/nodes/{uuid}" for uuid in uuids],
            "GET list of 50": ["/v1/nodes?limit=50"],
        }
        pids = fleet.service.roles["api"].pid, fleet.database.pid
        rows = []
        for what, paths in kinds.items():
            rates = []
            reader.do("read", Reading, url=url, paths=paths, connections=1, seconds=0.5)
            for connections in CONNECTIONS:
                before = sum(map(cpu_seconds, pids))
                reading = reader.do("read", Reading, url=url, paths=paths, connections=connections, seconds=seconds)
                cpu = (sum(map(cpu_seconds, pids)) - before) * 1000 / (reading.rate * seconds)
                rows.append((what, connections, reading.rate, reading.latency, cpu))
                report.keep("reads", (what, connections, reading, cpu))
                rates.append(reading.rate)
                if reading.errors:
                    report.wrong([f"{reading.errors} errors from {what} over {connections} connections"])
            report.figure(f"{what}/s", fleet.database.name, max(rates), least=LEAST_RATE.get(what))
    report.table(("", "connections", "per s", "ms p50 / p99 / max", "CPU ms each"), rows)


@click.command("reads")
@click.pass_obj
@click.option("--database", type=click.Choice(NAMES), default="sqlite", show_default=True)
@click.option("--nodes", default=200, show_default=True, help="Inspected nodes to read of.")
@click.option("--seconds", default=3.0, show_default=True, help="How long for each kind and number of connections.")
def command(context: tuple[Report, Path], database: str, nodes: int, seconds: float) -> None:
    """GETs of inventories, nodes and lists."""
    report, directory = context
    report.section(f"reads on {database}: {nodes} inspected nodes")
    measure(report, database, directory, nodes=nodes, seconds=seconds)


if __name__ == "__main__":
    serve(read=read)
