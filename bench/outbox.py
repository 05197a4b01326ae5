"""``outbox``: what events cost the transactions that write them, by database and number of targets.

Each transaction stores a new node, whose event is ``node.created``. The targets take turns, so a busy machine slows
all of them down.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.databases import NAMES, database
from bench.figures import Figure
from bench.quantiles import Spread, spread
from bench.report import Report
from ferroscope.config.options import DatabaseSettings, NotificationSettings, Settings
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope.transition import add_node
from tests.support import examples

_TARGETS: Final = (0, 1, 4)


class Written(msgspec.Struct, frozen=True):
    """Milliseconds of a transaction with so many targets."""

    database: str
    targets: int
    transaction: Spread


def measure(name: str, directory: Path, *, writes: int) -> list[Written]:
    """Store so many nodes with each number of targets."""
    with ExitStack() as stack:
        url = stack.enter_context(database(name, directory)).url
        backends: dict[int, Backend] = {}
        for number in _TARGETS:
            targets = tuple(f'{{"name": "t{one}", "url": "http://127.0.0.1:9/"}}' for one in range(number))
            options = NotificationSettings(target=targets)
            settings = Settings(database=DatabaseSettings(connection=url), notifications=options)
            ensure_schema(settings, upgrade=True)
            backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
            stack.callback(backend.close)
            backends[number] = backend
        found: dict[int, list[float]] = {number: [] for number in _TARGETS}
        for _ in range(writes):
            for number, backend in backends.items():
                node = examples.node()
                began = time.perf_counter()
                backend.store.write(lambda tx, node=node: add_node(tx, node))  # type: ignore[misc]
                found[number].append(time.perf_counter() - began)
    return [Written(name, number, spread(seconds)) for number, seconds in found.items()]


@click.command("outbox")
@click.pass_obj
@click.option("--database", "databases", type=click.Choice(NAMES), multiple=True, default=NAMES)
@click.option("--writes", default=1000, show_default=True)
def command(found: tuple[Report, Path], databases: tuple[str, ...] = NAMES, writes: int = 1000) -> None:
    """What the events of notifications cost a transaction."""
    report, directory = found
    report.section(f"outbox: {writes} transactions with each number of targets")
    written = [one for name in databases for one in measure(name, directory, writes=writes)]
    rows = [(one.database, one.targets, str(one.transaction)) for one in written]
    report.table(("database", "targets", "transaction, ms: p50 / p99 / max"), rows)
    report.keep("outbox", written)
    report.found(
        *(Figure(f"transaction with {one.targets} targets, ms", one.database, one.transaction.p50) for one in written)
    )
