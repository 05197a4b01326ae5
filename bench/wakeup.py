"""``wakeup``: how long after a commit in one process another process's waiting thread goes on, by database and bus.

Both processes' connections are in this process; what lies between them is the database or RabbitMQ.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import msgspec

from bench.databases import database
from bench.figures import Figure
from bench.quantiles import Spread, spread
from bench.report import Report
from ferroscope.bus.local import RABBITMQ, LocalBus
from ferroscope.config.options import BusSettings, DatabaseSettings, Settings
from ferroscope.contracts.queue import REQUESTS_OF
from ferroscope.core.lanes import Lane
from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.db.prepare import ensure_schema
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support.processes import until
from tests.support.servers import Server

_SITES: Final = (("postgresql", False), ("mariadb", False), ("mariadb", True))


class Woken(msgspec.Struct, frozen=True):
    """``commit``: the transaction itself; ``wake``: from its end until the other process's thread goes on."""

    site: str
    commit: Spread
    wake: Spread


def measure(directory: Path, *, requests: int, pause: float) -> list[Woken]:
    """Put so many requests, with random pauses of ``pause`` seconds on average."""
    found = []
    for name, rabbitmq in _SITES:
        with ExitStack() as stack:
            url = stack.enter_context(database(name, directory)).url
            broker = Server("rabbitmq", "rabbitmq").url("") if rabbitmq else ""
            listening, other = stack.enter_context(_pair(url, broker))
            commits, wakes = [], []
            for _ in range(requests):
                time.sleep(random.uniform(0, 2 * pause))
                commit, wake = _one(listening, other)
                commits.append(commit)
                wakes.append(wake)
        site = f"RabbitMQ and {name}" if rabbitmq else name
        found.append(Woken(site, spread(commits), spread(wakes)))
    return found


@contextmanager
def _pair(url: str, broker: str) -> Iterator[tuple[Backend, Backend]]:
    settings = Settings(database=DatabaseSettings(connection=url), bus=BusSettings(transport_url=broker))
    ensure_schema(settings, upgrade=True)
    stop = threading.Event()
    backends = [open_backend(settings, clock=SystemClock(), stop=stop, listen=listen) for listen in (True, False)]
    listening, other = backends
    local = listening.bus
    assert isinstance(local, LocalBus)
    until(lambda: local.hears_from(RABBITMQ) if broker else local.hears)
    for _ in range(5):
        _one(listening, other)
    try:
        yield listening, other
    finally:
        stop.set()
        for backend in backends:
            backend.close()


def _one(listening: Backend, other: Backend) -> tuple[float, float]:
    """Return the seconds of the commit and of the wake-up; as a dispatcher does, the thread waits on one lane."""
    channel = REQUESTS_OF[Lane.BMC]
    seen = listening.bus.wait(channel, 0, 0.0)
    woken: list[float] = []

    def wait() -> None:
        listening.bus.wait(channel, seen, 10.0)
        woken.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    began = time.monotonic()
    other.store.write(lambda tx: tx.requests.put(Request(node=str(uuid.uuid4()), event=Event.INSPECT)))
    committed = time.monotonic()
    thread.join()
    return committed - began, max(0.0, woken[0] - committed)


@click.command("wakeup")
@click.pass_obj
@click.option("--requests", default=500, show_default=True)
@click.option("--pause", default=0.05, show_default=True, help="Seconds between two requests, on average.")
def command(found: tuple[Report, Path], requests: int = 500, pause: float = 0.05) -> None:
    """How soon another process wakes up after a commit, with and without RabbitMQ."""
    report, directory = found
    report.section(f"wakeup: {requests} requests, {pause * 1000:.0f} ms apart")
    woken = measure(directory, requests=requests, pause=pause)
    report.table(
        ("", "commit, ms: p50 / p99 / max", "wake-up, ms: p50 / p99 / max"),
        [(one.site, str(one.commit), str(one.wake)) for one in woken],
    )
    report.keep("wakeup", woken)
    report.found(*(Figure("wake-up p99, ms", one.site, one.wake.p99) for one in woken))
