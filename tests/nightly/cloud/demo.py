"""``python3 -m tools demo-cloud``: a cloud on one machine, each part of which is killed under inspections.

Ironic, Keystone, RabbitMQ, etcd, MariaDB and HAProxy are real; the machines' ramdisks are simulated, and their BMCs
are Ironic's fake hardware. Nothing remains. Needs root, for the network namespaces.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import click

from ferroscope_client.cli.output import console, table
from ferroscope_client.errors import Exit
from tests.nightly.cloud.site import Cloud, Fault, Ramdisks
from tests.support.servers import KeeperProcess

# Seconds for which a part is dead before it is started again, as a service manager does.
_DEAD = 2.0
_SECONDS = 420.0


class Outcome(NamedTuple):
    """``states``: the number of inspections by final state; ``rows``: what was killed, and when."""

    states: dict[str, int]
    unfinished: int
    wrong: list[str]
    rows: list[tuple[str, str, str]]
    retries: int
    longest: float
    seconds: float


def inspect(cloud: Cloud, nodes: int, *, calm: float) -> Outcome:
    """Inspect so many nodes while one part of each kind is killed; ``calm``: seconds between two faults."""
    machines = cloud.enroll(nodes)
    faults = cloud.faults()
    began = time.monotonic()
    for uuid in machines:
        status, found = cloud.client.call("POST", f"/v1/introspection/{uuid}")
        if status != 202:
            raise RuntimeError(f"the inspection of {uuid} was refused: {status} {found}")
    ramdisks = Ramdisks(cloud.client, machines)
    ramdisks.start()
    rows = []
    try:
        for fault in faults:
            time.sleep(calm)
            rows.append(_harm(fault, began, ramdisks))
        while len(ramdisks.ended) < nodes and time.monotonic() < began + _SECONDS and ramdisks.is_alive():
            time.sleep(0.2)
    finally:
        ramdisks.end()
    seconds = time.monotonic() - began
    ended = list(ramdisks.ended.values())
    states = {state: ended.count(state) for state in sorted(set(ended))}
    client = cloud.client
    wrong = cloud.wrong(machines)
    return Outcome(states, nodes - len(ended), wrong, rows, client.retries, client.longest, seconds)


def _harm(fault: Fault, began: float, ramdisks: Ramdisks) -> tuple[str, str, str]:
    """Kill the part, and start it again; return a row of the table."""
    killed, ended = time.monotonic() - began, len(ramdisks.ended)
    fault.harm()
    time.sleep(_DEAD)
    fault.repair()
    return fault.part, f"{killed:.1f} s", str(ended)


def run(directory: Path, nodes: int, *, calm: float) -> Outcome:
    """Build the cloud, inspect, and take it down again."""
    with Cloud(directory) as cloud:
        return inspect(cloud, nodes, calm=calm)


@click.command()
@click.option("--nodes", type=click.IntRange(1, 1000), default=100, show_default=True, help="Number of nodes.")
@click.option("--calm", type=float, default=4.0, show_default=True, help="Seconds between two faults.")
def main(nodes: int, calm: float) -> None:
    """Kill one of each kind of part of a cloud while nodes are inspected, and show that all inspections finish."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.INTERRUPTED))
    screen = console()
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-demo-cloud-"))
    keeper = KeeperProcess()
    began = time.monotonic()
    try:
        screen.print(
            "Starting Keystone, Ironic, RabbitMQ, etcd, MariaDB, two HAProxies, three apis and three workers; "
            f"then {nodes} nodes are enrolled in Ironic and inspected ..."
        )
        outcome = run(directory, nodes, calm=calm)
    except RuntimeError as exc:
        click.echo(f"Error: {exc}\nthe logs are in {directory}", err=True)
        sys.exit(Exit.FAILURE)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory)
        sys.exit(Exit.INTERRUPTED)
    finally:
        keeper.close()
    screen.print(table(("KILLED (SIGKILL)", "AFTER", "INSPECTIONS ENDED BY THEN"), outcome.rows))
    screen.print(
        f"{nodes} inspections in {outcome.seconds:.0f} s: {outcome.states.get('finished', 0)} finished, "
        f"{outcome.states.get('error', 0)} failed, {outcome.unfinished} not ended. Clients tried {outcome.retries} "
        f"times again; the longest call took {outcome.longest:.1f} s."
    )
    if outcome.states != {"finished": nodes} or outcome.wrong:
        click.echo(
            "\n".join([*outcome.wrong, f"Error: not all is as it must be; the logs are in {directory}"]), err=True
        )
        sys.exit(Exit.FAILURE)
    shutil.rmtree(directory)
    screen.print("Ironic has the results of each; no node is locked, and all machines are off.", style="bold green")
    screen.print(f"Done in {time.monotonic() - began:.0f} s; nothing of it is left.", style="bold")


if __name__ == "__main__":
    main()
