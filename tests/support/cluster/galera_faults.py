"""``python -m tests.support.cluster.galera_faults --inspections 10000 --faults 100``: Galera fails under inspections.

A database node is killed, frozen, or cut off from the other one, evenly spread over the inspections, and joins again.
Meanwhile, clients add rows and acquire leases that expire at once, and note what was acknowledged. At the end the
installation is audited, and what was noted is compared with what is there.
"""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import msgspec

from tests.support.cluster.audit import Audit, audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.failovers import Client, Found, compared
from tests.support.cluster.operator import Operator
from tests.support.databases import upgrade
from tests.support.galera import Galera, Node, galera
from tests.support.processes import PATIENCE, until

_AT_ONCE = 50
_PATIENCE = 120.0
# A cluster that has lost a node commits nothing for some seconds, longer than a member of FAST lives; while a node
# copies everything from the only other one, for as long as that takes. A ramdisk that has then given up five times in
# half a minute restarts its agent after another half, which must not be too late.
OPTIONS = (
    FAST.replace("member_ttl = 3", "member_ttl = 12")
    .replace("max_attempts = 5", "max_attempts = 20")
    .replace("profile = fast", "profile = default")
    .replace("timeout = 60", "timeout = 300")
)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to the cluster, what came of it, and how the nodes joined again."""

    faults: dict[str, int]
    transfers: tuple[int, int]
    seconds: float
    found: Found
    audit: Audit

    def lines(self) -> list[str]:
        return [
            f"{self.seconds:.0f} s",
            *(f"{kind:>26}  {count}" for kind, count in sorted(self.faults.items())),
            f"{'joins (IST, SST)':>26}  {self.transfers}",
            "clients:",
            *self.found.lines(),
            "inspections:",
            *self.audit.lines(),
        ]


class Faults:
    """Injects ``total`` faults, each when its share of the inspections has ended."""

    def __init__(self, nodes: Galera, operator: Operator, counts: Counter[str], *, seed: int) -> None:
        self._nodes = nodes
        self._operator = operator
        self._random = random.Random(seed)
        self.counts = counts
        self.times: list[float] = []

    def run(self, total: int, inspections: int, tell: Callable[[str], None]) -> None:
        for number in range(total):
            due = inspections * number / total * 0.9 + 1
            if not until(lambda due=due: self._ended() >= due, seconds=600):  # type: ignore[misc]
                raise RuntimeError(f"only {self._ended()} inspections have ended")
            self._nodes.wait_ready()  # a busy machine excludes a node by itself: that is a fault, and two are too many
            node = self._random.choice(self._nodes.nodes)
            kind = self._random.choice(["kill", "kill", "kill and copy", "freeze", "cut off"])
            self.times.append(time.monotonic())
            {"kill": self._kill, "kill and copy": self._copy, "freeze": self._freeze, "cut off": self._cut}[kind](node)
            self.counts[f"{kind} {node.name}"] += 1
            self._nodes.wait_ready()
            tell(f"{number + 1} faults, {self._ended()} inspections have ended: {kind} {node.name}")

    def _ended(self) -> int:
        if self._operator.fault is not None:
            raise self._operator.fault
        return self._operator.ended

    def _kill(self, node: Node) -> None:
        node.kill()
        self._pause()
        self._nodes.restart(node)

    def _copy(self, node: Node) -> None:
        node.kill()
        self._pause()
        if all(other.is_ready() for other in self._nodes.nodes if other is not node):
            node.forget()  # else its files are the only ones that have everything
        self._nodes.restart(node)

    def _freeze(self, node: Node) -> None:
        node.freeze()
        self._pause()
        node.thaw()

    def _cut(self, node: Node) -> None:
        node.isolate(on=True)
        self._pause()
        node.isolate(on=False)

    def _pause(self) -> None:
        """Leave it as it is for long enough that the others go on without it, mostly."""
        time.sleep(self._random.uniform(1.0, 8.0))


def inspected(
    nodes: Galera, directory: Path, *, machines: int, inspections: int, faults: int, seed: int,
    tell: Callable[[str], None] = lambda _line: None,
) -> Outcome:  # fmt: skip
    """Run so many inspections and faults on a cluster whose schema is there."""
    plan = Plan(nodes=machines, workers=2, options=OPTIONS)
    stop = threading.Event()
    began = time.monotonic()
    with Cluster(directory, nodes.url, plan) as cluster:
        counts: Counter[str] = Counter()

        def limit() -> float:
            """Return how many inspections may have been started: they wait for the faults, as these for them."""
            return min(inspections, _AT_ONCE + inspections * (counts.total() + 1) / max(faults, 1))

        operator = Operator(cluster, rounds=None, at_once=_AT_ONCE, give_up=_PATIENCE, limit=limit)
        clients = [Client(number, nodes.url, stop, pause=0.05) for number in range(2)]
        injected = Faults(nodes, operator, counts, seed=seed)
        for thread in (operator, *clients):
            thread.start()
        try:
            injected.run(faults, inspections, tell)
            if not until(lambda: operator.accepted >= inspections, seconds=600):
                raise RuntimeError(f"only {operator.accepted} inspections were accepted")
            operator.finish()
            operator.done()
            seconds = time.monotonic() - began
            cluster.settle()
        finally:
            stop.set()
            for client in clients:
                client.join(PATIENCE)
        found = compared(clients, injected.times)
        for client in clients:
            client.backend.close()
        one, two = (node.transfers() for node in nodes.nodes)
        return Outcome(
            faults=dict(injected.counts),
            transfers=(one[0] + two[0], one[1] + two[1]),
            seconds=seconds,
            found=found,
            audit=audit(cluster, operator),
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--inspections", default=10_000, show_default=True)
@click.option("--faults", default=100, show_default=True)
@click.option("--machines", default=100, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--several-writers", is_flag=True, help="HAProxy uses both nodes at the same time.")
def main(*, inspections: int, faults: int, machines: int, seed: int, several_writers: bool) -> None:
    """Let the nodes of a Galera cluster fail under inspections; then count what was lost."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was set up is taken down then, too
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-galera-"))
    with galera(several_writers=several_writers) as nodes:
        upgrade(nodes.url)
        outcome = inspected(
            nodes, directory, machines=machines, inspections=inspections, faults=faults, seed=seed,
            tell=lambda line: click.echo(line, err=True),
        )  # fmt: skip
    click.echo("\n".join(outcome.lines()))
    wrong = [*outcome.audit.violations]
    if wrong or outcome.found.lost or outcome.found.doubled:
        click.echo("\n".join(["violations:", *wrong, f"logs: {directory}"]))
        sys.exit(1)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
