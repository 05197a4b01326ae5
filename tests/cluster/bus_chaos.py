"""``python -m tests.cluster.bus_chaos --minutes 30``: two brokers in all kinds of trouble while requests are claimed.

One process's connections put requests into MariaDB all the time, another one's claim them. Their RabbitMQ is a cluster
of two nodes, behind a forwarder each: nodes are killed, frozen, cut off, without memory, or flap. Counts requests that
were lost or claimed twice, and how long each waited. Exit code 1 if one was lost, or if p99 is over one poll interval.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

from bench.quantiles import spread
from ferroscope.config.options import BusSettings, DatabaseSettings, Settings
from ferroscope.core.model import Member, Request
from ferroscope.core.states import Event
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import databases, rabbitmq
from tests.support.processes import free_port, signal_tree, spawn, until
from tests.support.servers import KeeperProcess, Server

_ROOT: Final = Path(__file__).parents[2]
_EVERY: Final = 0.02
_TTL: Final = 3600.0


class Node:
    """One node of the cluster, and the forwarder before it."""

    def __init__(self, directory: Path, epmd: int, peers: list[str]) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.port, self.front = free_port(), free_port()
        self._command = rabbitmq.command(directory, self.port, epmd, peers)
        self._process: subprocess.Popen[bytes] | None = None
        self._forward: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self._process is None:
            self._process = spawn(self._command, user=None, directory=self.directory, log=self.directory / "log.txt")

    def ready(self) -> bool:
        return rabbitmq.answers(self.port)

    def kill(self) -> None:
        if self._process is not None:
            signal_tree(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            signal_tree(self._process.pid, number)

    def connect(self) -> None:
        if self._forward is None:
            words = [f"127.0.0.1:{self.front}", f"127.0.0.1:{self.port}"]
            command = [sys.executable, "-m", "tests.cluster.forward", *words]
            self._forward = spawn(command, user=None, directory=_ROOT, log=self.directory / "forward.txt")

    def disconnect(self) -> None:
        if self._forward is not None:
            self._forward.kill()
            self._forward.wait()
            self._forward = None

    def cut(self, number: signal.Signals) -> None:
        if self._forward is not None:
            self._forward.send_signal(number)

    def memory(self, limit: str) -> None:
        rabbitmq.control(self.directory, "set_vm_memory_high_watermark", *limit.split())


class Load:
    """Puts requests through one backend, and claims them through another one with two threads."""

    def __init__(self, listening: Backend, other: Backend) -> None:
        self._listening, self._other = listening, other
        self._ended, self._drained = threading.Event(), threading.Event()
        self.put: dict[str, float] = {}
        self.claimed: dict[str, float] = {}
        self.twice = 0
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._put), *(threading.Thread(target=self._claim) for _ in range(2))]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._ended.set()
        self._threads[0].join()
        until(lambda: len(self.claimed) >= len(self.put))
        self._drained.set()
        for thread in self._threads:
            thread.join()

    def latencies(self) -> list[float]:
        """Return the seconds from commit to claim."""
        return [max(0.0, self.claimed[node] - at) for node, at in self.put.items() if node in self.claimed]

    def _put(self) -> None:
        while not self._ended.wait(random.uniform(0, 2 * _EVERY)):
            node = str(uuid.uuid4())
            self._other.store.write(lambda tx, node=node: tx.requests.put(Request(node=node, event=Event.INSPECT)))  # type: ignore[misc]
            self.put[node] = time.monotonic()

    def _claim(self) -> None:
        while not self._drained.is_set():
            claim = self._listening.queue.get("worker", 1.0, self._drained)
            if claim is not None:
                with self._lock:
                    self.twice += claim.request.node in self.claimed
                    self.claimed[claim.request.node] = time.monotonic()
                self._listening.store.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]


def storm(nodes: list[Node], seconds: float, seed: int) -> Counter[str]:
    """Inject faults for so long, each repaired before the next one; return their counts."""
    rng, done, until_then = random.Random(seed), Counter[str](), time.monotonic() + seconds
    kinds = ["kill", "freeze", "cut", "memory", "flap", "kill both"]
    while time.monotonic() < until_then:
        kind, node = kinds[sum(done.values()) % len(kinds)], rng.choice(nodes)
        harmed = nodes if kind in ("kill both", "memory") else [node]
        for one in harmed:
            if kind.startswith("kill"):
                one.kill()
            elif kind == "freeze":
                one.signal(signal.SIGSTOP)
            elif kind == "cut":
                one.cut(signal.SIGSTOP)
            elif kind == "memory":
                one.memory("absolute 1")
        for _ in range(8 if kind == "flap" else 0):
            node.disconnect()
            time.sleep(rng.uniform(0.1, 0.5))
            node.connect()
            time.sleep(rng.uniform(0.1, 1.0))
        time.sleep(rng.uniform(2.0, 8.0))
        for one in harmed:
            one.start()
            one.signal(signal.SIGCONT)
            one.cut(signal.SIGCONT)
        until(lambda: all(one.ready() for one in nodes), seconds=120)  # a node waits for the one that was last alive
        if kind == "memory":
            for one in harmed:
                one.memory("0.4")
        done[kind] += 1
        time.sleep(rng.uniform(1.0, 3.0))
    return done


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(*, minutes: float, seed: int) -> None:
    """Harm RabbitMQ for a while; then count requests and latencies."""
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-bus-chaos-"))
    keeper = KeeperProcess()
    with ExitStack() as stack:
        stack.callback(keeper.close)
        epmd = free_port()
        stack.callback(rabbitmq.port_mapper(directory, epmd).kill)
        places = [directory / name for name in ("one", "two")]
        nodes = [Node(place, epmd, [rabbitmq.node_name(other) for other in places]) for place in places]
        for node in nodes:
            node.start()
            stack.callback(node.kill)
            node.connect()
            stack.callback(node.disconnect)
            assert until(node.ready, seconds=120)
        url = stack.enter_context(databases.fresh(Server("mariadb", "mariadb")))
        hosts = ",".join(f"127.0.0.1:{node.front}" for node in nodes)
        bus = BusSettings(transport_url=f"rabbit://{hosts}/", heartbeat=2, connect_timeout=2.0)
        settings = Settings(database=DatabaseSettings(connection=url), bus=bus)
        stop = threading.Event()
        listening, other = (
            open_backend(settings, clock=SystemClock(), stop=stop, listen=listen) for listen in (True, False)
        )
        member = Member(id="worker", host="h", pid=1, role="worker")
        listening.store.write(lambda tx: tx.members.beat(member, _TTL))
        load = Load(listening, other)
        time.sleep(10.0)
        calm = spread(load.latencies())
        faults = storm(nodes, minutes * 60, seed)
        load.end()
        stop.set()
        other.close()
        listening.close()
    found, lost = spread(load.latencies()), len(load.put) - len(load.claimed)
    poll = settings.database.poll_interval * 1000
    click.echo(f"faults: {dict(faults)}")
    click.echo(f"{len(load.put)} requests, {lost} lost, {load.twice} claimed twice")
    click.echo(f"commit to claim, ms, p50 / p99 / max: {found}; before the first fault: {calm}; one poll: {poll:.0f}")
    if lost or load.twice or found.p99 - calm.p50 > poll:
        sys.exit(1)


if __name__ == "__main__":
    main()
