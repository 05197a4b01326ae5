"""``python -m tests.support.cluster.takeovers --database galera --rounds 2000``: leaders race with their successors.

In each round a lease has expired; its old leader writes under the fence at the same moment in which a successor takes
the lease, on Galera on the other node. What the old one writes may count before the newer epoch is issued, never after,
and a lease that the successor has acquired must be there.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import click
import msgspec
from sqlalchemy import text

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreError
from ferroscope.core.model import LeaseClaim
from ferroscope.db import Store
from ferroscope.db.engine import build_engine
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.databases import private, upgrade
from tests.support.galera import galera
from tests.support.processes import PATIENCE

_LOOK = text("SELECT name FROM nodes")
_WRITE = text("UPDATE nodes SET name = :name")


class Race(msgspec.Struct):
    """What came out: ``stale`` writes were committed after a newer epoch had been issued.

    ``lost``: acquisitions whose commit was acknowledged, and that were not there.
    """

    rounds: int = 0
    refused: int = 0
    stale: int = 0
    lost: int = 0


def store(url: str, **options: Any) -> Store:
    """Return a store with connections of its own."""
    settings = DatabaseSettings(connection=url, **options)
    engine = build_engine(settings)
    return Store(engine, settings=settings, bus=LocalBus(), clock=SystemClock(), stop=threading.Event())


def take(successor: Store, seconds: float = 60.0) -> LeaseClaim:
    """Win the lease as soon as it is free."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            return successor.write(lambda tx: tx.leases.acquire("backup", "successor", seconds))
        except (LeaseHeldError, StoreError):
            time.sleep(0.05)
    raise AssertionError("nobody took over")


def race(url: str, rounds: int, successors: str = "") -> Race:
    """Let old leaders and successors race ``rounds`` times; ``successors``: their URL, on another node."""
    old, new = store(url), store(successors or url)
    old.write(lambda tx: tx.nodes.add(examples.node(name="0")))
    found = Race()
    try:
        for _ in range(rounds):
            _round(old, new, found)
    finally:
        old.engine.dispose()
        new.engine.dispose()
    return found


def _round(old: Store, new: Store, found: Race) -> None:
    lease = old.write(lambda tx: tx.leases.acquire("backup", "old", -0.001))
    start = threading.Barrier(2)
    refused: list[bool] = []

    def work(tx: Any) -> None:
        tx.leases.hold(lease)
        tx.connection.execute(_WRITE, {"name": str(lease.epoch)})

    def write() -> None:
        start.wait()
        try:
            old.write(work)
        except LeaseLostError:
            refused.append(True)

    thread = threading.Thread(target=write)
    thread.start()
    start.wait()
    successor = take(new)
    at_takeover = _name(new)
    thread.join()
    found.rounds += 1
    found.refused += len(refused)
    found.stale += _name(new) != at_takeover or successor.epoch != lease.epoch + 1
    try:
        new.write(lambda tx: tx.leases.release(successor))
    except LeaseLostError:
        found.lost += 1


def _name(new: Store) -> Any:
    return new.read(lambda tx: tx.connection.execute(_LOOK).scalar())  # type: ignore[attr-defined]


@click.command()
@click.option(
    "--database", type=click.Choice(["postgresql", "mariadb", "galera"]), default="postgresql", show_default=True
)
@click.option("--rounds", default=2000, show_default=True)
def main(database: str, rounds: int) -> None:
    """Count the stale writes and the lost leases of many takeovers."""
    if database == "galera":
        with galera(several_writers=True) as cluster:
            upgrade(cluster.url)
            first, second = map(cluster.url_of, cluster.nodes)
            found = race(first, rounds, second)
    else:
        with private(database) as (url, _):
            found = race(url, rounds)
    click.echo(
        f"{database}: {found.rounds} takeovers, {found.refused} old leaders refused, {found.stale} stale writes, "
        f"{found.lost} leases lost"
    )
    sys.exit(found.stale + found.lost != 0)


if __name__ == "__main__":
    main()
