"""``python -m tests.support.cluster.failovers --failovers 100``: PostgreSQL fails over while clients write.

Writers add rows and note each that was acknowledged; candidates acquire leases that expire at once, and note each
epoch. The primary is killed and its standby promoted, again and again. At the end all that was noted is compared with
what is there. With ``--asynchronous`` commits may be lost: the report says how many, and how many processes noticed.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing

import click
import msgspec
from sqlalchemy import text

from bench.quantiles import spread
from ferroscope.config.options import DatabaseSettings, LeaseSettings, Settings
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError, StoreError
from ferroscope.core.model import Chassis
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support.databases import upgrade
from tests.support.postgresql_pair import Pair, pair
from tests.support.processes import PATIENCE, until

_LEASES = 4
_NAMES = text("SELECT description FROM chassis")


class Found(msgspec.Struct):
    """What came out; ``pauses`` are seconds between acknowledged writes of one writer over each fail-over."""

    failovers: int = 0
    acknowledged: int = 0
    unanswered: int = 0
    lost: int = 0
    epochs: int = 0
    doubled: int = 0
    reported: int = 0
    pauses: list[float] = []

    def lines(self) -> list[str]:
        found = spread(self.pauses)
        counts = [f"{name:>14}  {value}" for name, value in msgspec.to_builtins(self).items() if name != "pauses"]
        return [*counts, f"{'pause':>14}  {found.p50 / 1000:.2f} / {found.p99 / 1000:.2f} s (p50 / p99)"]


def again(act: Callable[[], object]) -> None:
    """Repeat it until the database is available."""

    def done() -> bool:
        try:
            act()
        except StoreError:
            return False
        return True

    assert until(done)


class Client(threading.Thread):
    """One process's connections: adds rows, acquires leases, and remembers what it was told."""

    def __init__(self, number: int, url: str, stop: threading.Event, *, pause: float = 0.0) -> None:
        super().__init__(name=f"client {number}", daemon=True)
        settings = Settings(
            database=DatabaseSettings(connection=url, statement_timeout=2.0, connect_timeout=2, busy_timeout=1.0),
            lease=LeaseSettings(profile="fast"),
        )
        self.backend: Backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=False)
        self._number = number
        self._ended = stop
        self._pause = pause
        self.names: list[str] = []
        self.unanswered = 0
        self.epochs: list[tuple[str, int]] = []
        self.at: list[float] = []
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._ended.wait(self._pause):
                self._step()
        except BaseException as fault:  # noqa: BLE001  # handed to whoever joins
            self.fault = fault

    def _step(self) -> None:
        name = f"n-{self._number}-{uuid.uuid4()}"
        try:
            self.backend.store.write(lambda tx: tx.chassis.add(Chassis(uuid=str(uuid.uuid4()), description=name)))
            self.names.append(name)
            self.at.append(time.monotonic())
            lease = f"lease-{len(self.names) % _LEASES}"
            won = self.backend.lease_store.write(lambda tx: tx.leases.acquire(lease, self.name, -0.001))
            self.epochs.append((lease, won.epoch))
        except (LeaseHeldError, LeaseLostError):
            pass
        except StoreError:
            self.unanswered += 1
            time.sleep(0.05)


class Failovers:
    """``run`` does it all on ``servers``, whose database is migrated."""

    def __init__(self, servers: Pair, *, writers: int = 4, calm: float = 1.0) -> None:
        self._servers = servers
        self._writers = writers
        self._calm = calm
        self._kills: list[float] = []

    def run(self, failovers: int) -> Found:
        stop = threading.Event()
        with ExitStack() as ending:
            clients = [Client(number, self._servers.url, stop) for number in range(self._writers)]
            for client in clients:
                ending.enter_context(closing(client.backend))
            for client in clients:
                client.start()
            try:
                for number in range(failovers):
                    self._fail_over(clients, replicate=number > 0)
                moving(clients)
            finally:
                stop.set()
                for client in clients:
                    client.join(PATIENCE)
            return compared(clients, self._kills)

    def _fail_over(self, clients: list[Client], *, replicate: bool) -> None:
        if replicate:
            self._servers.replicate()
        moving(clients)
        time.sleep(self._calm)  # the load between two faults
        self._kills.append(time.monotonic())
        self._servers.fail_over()


def moving(clients: Sequence[Client]) -> None:
    """Wait until every client has got something acknowledged since now."""
    before = [len(client.names) for client in clients]

    def moved() -> bool:
        for client in clients:
            if client.fault is not None:
                raise client.fault
        return all(len(client.names) > count for client, count in zip(clients, before, strict=True))

    if not until(moved):
        raise RuntimeError("the clients do not get on")


def compared(clients: Sequence[Client], kills: Sequence[float] = ()) -> Found:
    """Compare what the clients were told with what is in the database; ``kills`` are times of the monotonic clock."""
    with clients[0].backend.engine.connect() as connection:
        there = set(connection.execute(_NAMES).scalars())
    names = [name for client in clients for name in client.names]
    epochs = Counter(issued for client in clients for issued in client.epochs)
    return Found(
        failovers=len(kills),
        acknowledged=len(names),
        unanswered=sum(client.unanswered for client in clients),
        lost=len(set(names) - there),
        epochs=sum(epochs.values()),
        doubled=sum(count - 1 for count in epochs.values()),
        reported=sum(bool(client.backend.memory.proofs()) for client in clients),
        pauses=[_pause(client.at, kill) for client in clients for kill in kills],
    )


def _pause(times: list[float], kill: float) -> float:
    """Return how long a client got nothing acknowledged around this moment."""
    after = next(at for at in times if at > kill + 0.1)
    return after - max((at for at in times if at < after), default=kill)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--failovers", default=100, show_default=True)
@click.option("--writers", default=4, show_default=True)
@click.option("--asynchronous", is_flag=True, help="The standby may lag behind; commits may be lost.")
def main(*, failovers: int, writers: int, asynchronous: bool) -> None:
    """Fail over so many times under load; then compare what was acknowledged with what is there."""
    with pair(synchronous=not asynchronous) as servers:
        upgrade(servers.url)
        found = Failovers(servers, writers=writers).run(failovers)
    click.echo("\n".join(found.lines()))
    sys.exit(bool(found.lost or found.doubled) and not asynchronous)


if __name__ == "__main__":
    main()
