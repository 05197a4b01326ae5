"""Fault injection: SIGKILL, SIGSTOP for longer than the time to live, a network partition, a clean restart. Seeded.

Processes that have ended are restarted at once, as a service manager would do.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
from sqlalchemy import text

from tests.support.cluster.cluster import Cluster
from tests.support.databases import opened
from tests.support.installation import Played, with_suppressed_kill
from tests.support.processes import until

_LEADER = text("SELECT m.pid FROM leases l JOIN members m ON m.id = l.holder WHERE l.name = 'periodic/timeouts'")


class Fault(msgspec.Struct):
    """One injected fault; ``target`` is the name of a process, ``seconds`` how long the fault lasted."""

    kind: str
    target: str
    seconds: float = 0.0


class FaultInjector:
    """Injects faults into the processes of ``cluster``. ``silence`` is longer than any time to live."""

    def __init__(self, cluster: Cluster, *, seed: int, silence: float) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self._silence = silence
        self.faults: list[Fault] = []
        self.exits: Counter[int] = Counter()

    def counts(self) -> dict[str, int]:
        """Return how often each fault was injected, by ``kind role``."""
        return dict(Counter(f"{fault.kind} {fault.target.partition('-')[0]}" for fault in self.faults))

    def kill_worker(self) -> None:
        """SIGKILL a worker, or one child of a supervisor."""
        worker = self._random.choice(self._cluster.workers)
        children = worker.children() if self._cluster.plan.supervised else []
        if children:
            pid = self._random.choice(children)
            os.kill(pid, signal.SIGKILL)
        else:
            worker.kill()
        self._note("SIGKILL", worker)
        self.revive()

    def kill_api(self) -> None:
        """SIGKILL an api process, but only while all others are ready."""
        api = self._random.choice(self._cluster.apis)
        others = [other for other in self._cluster.apis if other is not api]
        if not until(lambda: all(other.alive and other.ready() for other in others)):
            raise RuntimeError("the other api processes did not become ready again")
        self._cluster.balancer.wait_found()
        api.kill()
        self._note("SIGKILL", api)
        self.revive()

    def kill_leader(self) -> None:
        """SIGKILL the worker process that leads a periodic task."""
        pid = self._leader()
        if pid is None:  # an election is in progress
            return
        with_suppressed_kill(pid)
        self.faults.append(Fault("SIGKILL", "leader"))
        until(lambda: any(not worker.alive for worker in self._cluster.workers), seconds=1)
        self.revive()

    def freeze_worker(self) -> None:
        """SIGSTOP a worker for longer than its time to live, then resume it."""
        worker = self._random.choice(self._cluster.workers)
        worker.freeze()
        seconds = self._silence * self._random.uniform(1.0, 1.3)
        time.sleep(seconds)
        worker.thaw()
        self._note("SIGSTOP", worker, seconds)

    def cut_worker(self) -> None:
        """Partition a worker from the database for longer than its time to live."""
        worker = self._random.choice(self._cluster.workers)
        net = self._cluster.nets[worker.name]
        net.cut()
        seconds = self._silence * self._random.uniform(1.0, 1.5)
        time.sleep(seconds)
        net.heal()
        self._note("cut off", worker, seconds)
        self.revive()

    def restart_worker(self) -> None:
        """SIGTERM a worker and start it again."""
        worker = self._random.choice(self._cluster.workers)
        code = worker.stop()
        self.exits[code] += 1
        self._note("SIGTERM", worker)
        worker.start()

    def revive(self) -> None:
        """Restart the processes that have ended, as a service manager does."""
        for played in self._cluster.processes():
            code = played.process.poll()
            if code is not None:
                self.exits[code] += 1
                played.start()

    def pause(self, low: float, high: float) -> None:
        time.sleep(self._random.uniform(low, high))

    def endless(self, kinds: dict[str, int]) -> Iterator[str]:
        """Yield names of faults forever; ``kinds`` has a weight for each."""
        while True:
            yield self._random.choices(list(kinds), list(kinds.values()))[0]

    def shuffled(self, kinds: dict[str, int]) -> Iterator[str]:
        """Yield every name as often as ``kinds`` says, in an order that depends on the seed."""
        names = [name for name, count in kinds.items() for _ in range(count)]
        self._random.shuffle(names)
        yield from names

    def inject(self, name: str) -> None:
        """Inject the fault with this name."""
        method: Callable[[], None] = getattr(self, name)
        method()

    def _leader(self) -> int | None:
        with opened(self._cluster.database_url) as engine, engine.connect() as connection:
            pid: int | None = connection.execute(_LEADER).scalar()
            return pid

    def _note(self, kind: str, played: Played, seconds: float = 0.0) -> None:
        self.faults.append(Fault(kind, played.name, round(seconds, 2)))
