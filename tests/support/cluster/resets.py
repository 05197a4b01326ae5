"""``python -m tests.support.cluster.resets --machines 200``: workers die while BMCs carry out a reset of 3 s.

The machines must not be powered off. Each inspection resets its machine into the ramdisk once and out of it once; a
second reset into it would boot the machine from disk, where it waits forever. What counts is what the fleet saw.

All machines of a batch are started at once, and the workers die as soon as all are being reset, or, if this host is too
busy for that, before the first reset is over.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click
import msgspec
from sqlalchemy import Connection, text

from tests.support.cluster.cluster import Cluster, Plan, pool
from tests.support.databases import opened, private
from tests.support.processes import until

_OPTIONS: Final = "[worker]\nget_timeout = 0.5\n"
# Of the three seconds: how long the first reset is under way at least, and at most, when its worker dies.
_KILLED_AFTER: Final = 1.0
_OVER_AFTER: Final = 2.0
_AT_ONCE: Final = 8  # starts
_RESETS: Final = text(
    "SELECT COUNT(*) FROM requests WHERE event = 'inspect' AND holder IS NOT NULL AND progress LIKE '%\"reboot\"%'"
)
_AT_WORK: Final = text(
    "SELECT DISTINCT m.pid FROM members m JOIN requests r ON r.holder = m.id WHERE r.progress LIKE '%\"reboot\"%'"
)


class Count(msgspec.Struct):
    """``wrong``: machines that did not finish, or were reset into their ramdisk more or less often than once."""

    machines: int = 0
    killed: int = 0
    held: int = 0
    wrong: dict[str, str] = {}


def campaign(cluster: Cluster, batch: int) -> Count:
    """Inspect all machines, so many at a time, and kill the workers that wait for their BMCs; once in each batch."""
    count, names = Count(wrong={}), list(cluster.names)
    with opened(cluster.database_url) as engine:
        for start in range(0, len(names), batch):
            some = names[start : start + batch]
            _begin(cluster, some)
            with engine.connect() as connection:
                _await_resets(connection, len(some))
                with connection.begin():
                    count.held += int(connection.execute(_RESETS).scalar() or 0)
                    pids = list(connection.execute(_AT_WORK).scalars())
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            count.killed += len(pids)
            until(lambda some=some: _ended(cluster, some))  # type: ignore[misc]
            _look(cluster, some, count)
    return count


def _await_resets(connection: Connection, wanted: int) -> None:
    """Wait until so many resets are under way, or the first ones will soon be over."""
    seen: list[float] = []

    def reset() -> bool:
        with connection.begin():
            now = int(connection.execute(_RESETS).scalar() or 0)
        if now:
            seen.append(time.monotonic())
        return now >= wanted or (bool(seen) and seen[-1] - seen[0] > _OVER_AFTER)

    if not until(reset):
        raise RuntimeError("no machine was reset")
    time.sleep(max(0.0, seen[0] + _KILLED_AFTER - time.monotonic()))


def _begin(cluster: Cluster, names: list[str]) -> None:
    http = pool()
    with cluster.counters() as fleet:
        for name in names:
            fleet.call("set_power", node=name, power="power on")
    version = {"X-OpenStack-Ironic-API-Version": "1.95"}
    for name in names:
        patch = [{"op": "add", "path": "/disable_power_off", "value": True}]
        answer = http.request("PATCH", f"{cluster.url}/v1/nodes/{name}", json=patch, headers=version)
        assert answer.status == 200, answer.data

    def start(name: str) -> None:
        url = f"{cluster.url}/v1/nodes/{name}/states/provision"
        answer = http.request("PUT", url, json={"target": "inspect"}, headers=version)
        assert answer.status == 202, answer.data

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as threads:
        list(threads.map(start, names))


def _ended(cluster: Cluster, names: list[str]) -> bool:
    found = pool(1).request("GET", f"{cluster.url}/v1/nodes?fields=name,provision_state&limit=1000").json()["nodes"]
    states = {node["name"]: node["provision_state"] for node in found}
    return all(states[name] in ("manageable", "inspect failed") for name in names)


def _look(cluster: Cluster, names: list[str], count: Count) -> None:
    found = pool(1).request("GET", f"{cluster.url}/v1/nodes/detail?limit=1000").json()["nodes"]
    nodes = {node["name"]: node for node in found}
    with cluster.counters() as fleet:
        machines = fleet.status(names).nodes
    for name in names:
        count.machines += 1
        counters, node = machines[name].counters, nodes[name]
        # The last reset, out of the ramdisk, may have been the one at which a worker died: it is never repeated.
        if node["provision_state"] != "manageable" or counters.pxe_boots != 1 or counters.reboots > 2:
            count.wrong[name] = f"{node['provision_state']}, {counters}, {node['last_error']}"


def play(url: str, directory: Path, machines: int, batch: int) -> Count:
    """Run the whole campaign on this database."""
    special = tuple(f"sim-slow-reset-{number}" for number in range(1, machines + 1))
    plan = Plan(apis=1, workers=1, supervised=2, nodes=0, special=special, boot=0.5, options=_OPTIONS)
    with Cluster(directory, url, plan) as cluster:
        return campaign(cluster, batch)


@click.command()
@click.option("--database", type=click.Choice(["postgresql", "mariadb"]), default="postgresql", show_default=True)
@click.option("--machines", default=200, show_default=True)
@click.option("--batch", default=20, show_default=True)
def main(database: str, machines: int, batch: int) -> None:
    """Count the machines that were reset twice."""
    with private(database) as (url, _), tempfile.TemporaryDirectory() as directory:
        found = play(url, Path(directory), machines, batch)
    click.echo(
        f"{database}: {found.machines} machines, {found.killed} workers killed, {found.held} resets under way then, "
        f"{len(found.wrong)} machines wrong"
    )
    for name, what in found.wrong.items():
        click.echo(f"  {name}: {what}")
    sys.exit(bool(found.wrong))


if __name__ == "__main__":
    main()
