"""``python -m tests.support.cluster.outages --outages 3 --seconds 9``: outages while machines are being powered off.

Workers carry out ``finish`` with BMCs that take 5 s for each answer, and the database is killed or frozen, or all
workers are frozen, for longer than their heartbeats are valid. Nobody dies, so no inspection may fail.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
import msgspec
from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError

from tests.support import databases
from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.databases import opened
from tests.support.processes import until
from tests.support.servers import Server

HOWS: Final = ("kill", "freeze", "freeze-workers")
_FINISHING: Final = text("SELECT COUNT(*) FROM requests WHERE event = 'finish' AND holder IS NOT NULL")
_DELIVERED: Final = text("SELECT message FROM journal WHERE step = 'delivered again'")
_ENDS: Final = text("SELECT state, reason FROM inspections")


class Count(msgspec.Struct):
    """``under_way``: requests to finish that were being carried out when each of the outages began."""

    under_way: list[int]
    ends: dict[str, int]
    delivered_again: dict[str, int]


class Outages:
    """Begins and ends outages of a kind."""

    def __init__(self, cluster: Cluster, server: Server | None, how: str) -> None:
        self._cluster = cluster
        self._server = server
        self._how = how

    def happen(self, seconds: float) -> None:
        """Let an outage pass."""
        begin, end = self._acts()
        begin()
        time.sleep(seconds)
        end()

    def _acts(self) -> tuple[Callable[[], object], Callable[[], object]]:
        workers = self._cluster.workers
        if self._how == "freeze-workers":
            return lambda: [one.freeze() for one in workers], lambda: [one.thaw() for one in workers]
        assert self._server is not None, "a file has no server"
        if self._how == "freeze":
            return self._server.freeze, self._server.thaw
        return self._server.kill, self._server.start


def play(cluster: Cluster, outages: Outages, *, number: int, seconds: float) -> Count:
    """Inspect all machines, with ``number`` outages while they are being powered off."""
    count = Count(under_way=[], ends={}, delivered_again={})
    http = pool()
    with opened(cluster.database_url) as engine:
        for name in cluster.names:
            url = f"{cluster.url}/v1/nodes/{name}/states/provision"
            assert http.request("PUT", url, json={"target": "inspect"}).status == 202
        for _ in range(number):
            wanted = len(cluster.names) * 3 // 4 if not count.under_way else 1
            until(lambda wanted=wanted: _ended(engine, len(cluster.names)) or _finishing(engine) >= wanted)  # type: ignore[misc]
            count.under_way.append(_finishing(engine))
            outages.happen(seconds)
        until(lambda: _ended(engine, len(cluster.names)))
        with engine.connect() as connection:
            count.ends = Counter(f"{state} {reason or ''}".strip() for state, reason in connection.execute(_ENDS))
            count.delivered_again = Counter(connection.execute(_DELIVERED).scalars())
    return count


def _finishing(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(_FINISHING).scalar() or 0)


def _ended(engine: Engine, number: int) -> bool:
    try:
        with engine.connect() as connection:
            states = [state for state, _ in connection.execute(_ENDS)]
    except DBAPIError:
        return False
    return sum(state in ("finished", "error") for state in states) == number


def built(directory: Path, url: str, machines: int, *, bmc: float) -> Cluster:
    """Return what the outages are for; not started."""
    return Cluster(directory, url, Plan(apis=1, workers=2, nodes=machines, boot=0.5, bmc=bmc))


@click.command()
@click.option("--database", type=click.Choice(["postgresql", "mariadb", "sqlite"]), default="postgresql")
@click.option("--how", type=click.Choice(HOWS), default="kill", show_default=True)
@click.option("--outages", "number", default=3, show_default=True)
@click.option("--seconds", default=9.0, show_default=True)
@click.option("--machines", default=20, show_default=True)
@click.option("--bmc", default=5.0, show_default=True, help="Seconds before each answer of a BMC.")
def main(database: str, how: str, number: int, seconds: float, machines: int, bmc: float) -> None:
    """Count the inspections that failed."""
    with tempfile.TemporaryDirectory() as directory:
        if database == "sqlite":
            url = databases.sqlite(Path(directory))
            with built(Path(directory), url, machines, bmc=bmc) as cluster:
                found = play(cluster, Outages(cluster, None, how), number=number, seconds=seconds)
        else:
            with (
                databases.private(database) as (url, server),
                built(Path(directory), url, machines, bmc=bmc) as cluster,
            ):
                found = play(cluster, Outages(cluster, server, how), number=number, seconds=seconds)
    failed = sum(times for end, times in found.ends.items() if not end.startswith("finished"))
    click.echo(
        f"{database}, {how}: {number} outages of {seconds:g} s, {found.under_way} being finished: {failed} failed"
    )
    for what, times in [*found.ends.items(), *found.delivered_again.items()]:
        click.echo(f"  {times:>4}  {what}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
