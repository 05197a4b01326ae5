"""``python -m tests.support.cluster.bus_chaos --minutes 30``: two brokers in trouble, machines inspected.

One process's connections put requests into MariaDB all the time, another one's claim them. In a second database, the
whole service inspects simulated machines. Their RabbitMQ is a cluster of two nodes, behind a forwarder each: nodes are
killed, frozen, cut off from clients or from each other, without memory, or flap. Counts requests that were lost or
claimed twice, how long each waited, and audits the inspections. Exit code 1 if anything was lost or done twice, or if
the p99 of the wait is over one poll interval.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click

from bench.quantiles import spread
from ferroscope.config.options import BusSettings, DatabaseSettings, Settings
from ferroscope.core.model import Member, Request
from ferroscope.core.states import Event
from ferroscope.db import POLL_SECONDS
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests import ROOT
from tests.support import databases, rabbitmq
from tests.support.cluster.audit import Audit, audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.operator import Operator
from tests.support.databases import upgrade
from tests.support.processes import Harmable, free_port, spawn, until
from tests.support.servers import KeeperProcess, Server
from tests.support.stores import claim_from

_EVERY: Final = 0.02
_TTL: Final = 3600.0
_MACHINES: Final = 12
_AT_ONCE: Final = 3


class Node(Harmable):
    """One node of the cluster, and the forwarder before it."""

    def __init__(self, directory: Path, epmd: int, peers: list[str]) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.name = rabbitmq.node_name(directory)
        self.port, self.front = free_port(), free_port()
        self._command = rabbitmq.command(directory, self.port, epmd, peers)
        self._forward: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if self.process is None:
            self.process = spawn(self._command, user=None, directory=self.directory, log=self.directory / "log.txt")

    def ready(self) -> bool:
        return rabbitmq.answers(self.port)

    def connect(self) -> None:
        if self._forward is None:
            words = [f"127.0.0.1:{self.front}", f"127.0.0.1:{self.port}"]
            command = [sys.executable, "-m", "tests.support.cluster.forward", *words]
            self._forward = spawn(command, user=None, directory=ROOT, log=self.directory / "forward.txt")

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

    def leave(self, other: Node) -> None:
        """End the connection to the other node, and refuse another one: both keep their clients."""
        self._evaluate(f"erlang:set_cookie('{other.name}', refused_by_{self.directory.name})")
        self._evaluate(f"erlang:disconnect_node('{other.name}')")

    def sees(self, other: Node) -> bool:
        return other.name in self._evaluate("nodes()")

    def join(self, other: Node) -> None:
        self._evaluate(f"erlang:set_cookie('{other.name}', {rabbitmq.COOKIE})")
        self._evaluate(f"net_kernel:connect_node('{other.name}')")

    def _evaluate(self, expression: str) -> str:
        return rabbitmq.control(self.directory, "eval", f"{expression}.")


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
            claim = claim_from(self._listening.queue, "worker", 1.0, self._drained)
            if claim is not None:
                with self._lock:
                    self.twice += claim.request.node in self.claimed
                    self.claimed[claim.request.node] = time.monotonic()
                self._listening.store.write(lambda tx, claim=claim: tx.requests.consume(claim))  # type: ignore[misc]


class Storm:
    """Faults in turn, each repaired before the next one."""

    def __init__(self, nodes: list[Node], seed: int) -> None:
        self._nodes = nodes
        self._random = random.Random(seed)
        self._kinds = [
            self.kill, self.freeze, self.cut, self.part, self.take_memory, self.flap, self.kill_both
        ]  # fmt: skip
        self.done = Counter[str]()

    def run(self, seconds: float) -> None:
        """Inject faults for so long."""
        until_then = time.monotonic() + seconds
        while time.monotonic() < until_then:
            kind = self._kinds[self.done.total() % len(self._kinds)]
            kind(self._random.choice(self._nodes))
            self._wait_ready()
            self.done[kind.__name__] += 1
            time.sleep(self._random.uniform(1.0, 3.0))

    def kill(self, node: Node) -> None:
        node.kill()
        self._pause()
        node.start()

    def kill_both(self, _node: Node) -> None:
        for node in self._nodes:
            node.kill()
        self._pause()
        for node in self._nodes:
            node.start()

    def freeze(self, node: Node) -> None:
        node.freeze()
        self._pause()
        node.thaw()

    def cut(self, node: Node) -> None:
        """Partition the node from its clients."""
        node.cut(signal.SIGSTOP)
        self._pause()
        node.cut(signal.SIGCONT)

    def part(self, node: Node) -> None:
        """Partition the nodes from each other; a half that was cut off is started again, as its operator has to do."""
        (other,) = (one for one in self._nodes if one is not node)
        other.leave(node)
        node.leave(other)
        assert not node.sees(other)
        self._pause()
        node.join(other)
        other.join(node)
        node.kill()
        node.start()

    def take_memory(self, _node: Node) -> None:
        for node in self._nodes:
            node.memory("absolute 1")
        self._pause()
        for node in self._nodes:
            node.memory("0.4")

    def flap(self, node: Node) -> None:
        for _ in range(8):
            node.disconnect()
            time.sleep(self._random.uniform(0.1, 0.5))
            node.connect()
            time.sleep(self._random.uniform(0.1, 1.0))

    def _pause(self) -> None:
        time.sleep(self._random.uniform(2.0, 8.0))

    def _wait_ready(self) -> None:
        # A node waits for the one that was last alive.
        if not until(lambda: all(node.ready() for node in self._nodes)):
            raise RuntimeError("the brokers do not come back")


@contextmanager
def inspecting(directory: Path, url: str, bus: BusSettings) -> Iterator[Callable[[], Audit]]:
    """Inspect machines all the time, with two workers; give what ends that, and audits it."""
    options = "".join(f"{name} = {getattr(bus, name)}\n" for name in ("transport_url", "connect_timeout"))
    directory.mkdir()
    upgrade(url)
    with Cluster(directory, url, Plan(nodes=_MACHINES, workers=2, options=f"{FAST}[bus]\n{options}")) as cluster:
        operator = Operator(cluster, rounds=None, at_once=_AT_ONCE)
        operator.start()

        def ended() -> Audit:
            operator.finish()
            operator.done()
            return audit(cluster, operator)

        yield ended


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", default=30.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
def main(*, minutes: float, seed: int) -> None:
    """Harm RabbitMQ for a while; then count requests, latencies and inspections."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
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
            assert until(node.ready)
        server = Server("mariadb", "mariadb")
        url, other_url = (stack.enter_context(databases.fresh(server)) for _ in range(2))
        hosts = ",".join(f"127.0.0.1:{node.front}" for node in nodes)
        bus = BusSettings(transport_url=f"rabbit://{hosts}/", connect_timeout=2.0)
        end_inspections = stack.enter_context(inspecting(directory / "service", other_url, bus))
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
        storm = Storm(nodes, seed)
        storm.run(minutes * 60)
        load.end()
        inspections = end_inspections()
        stop.set()
        other.close()
        listening.close()
    found, lost = spread(load.latencies()), len(load.put) - len(load.claimed)
    poll = POLL_SECONDS * 1000
    click.echo(f"faults: {dict(storm.done)}")
    click.echo(f"{len(load.put)} requests, {lost} lost, {load.twice} claimed twice")
    click.echo(f"commit to claim, ms, p50 / p99 / max: {found}; before the first fault: {calm}; one poll: {poll:.0f}")
    click.echo("\n".join(["inspections:", *inspections.lines(), *inspections.violations]))
    if lost or load.twice or inspections.violations or found.p99 - calm.p50 > poll:
        click.echo(f"logs: {directory}")
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
