"""A campaign of kills: so many SIGKILLs of workers, apis and leaders, spread evenly over so many inspections.

Each victim is a process that is up and at work: a worker that holds requests, a leader with its lease, an api that
HAProxy uses. A worker is stopped for the moment in which is looked up what it holds, and never goes on. Kills wait
for inspections and inspections for kills, so that all of the ones happen during all of the others.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, text

from bench.quantiles import Spread, spread
from ferroscope.config.options import DatabaseSettings
from ferroscope.db import engine
from tests.support.cluster.audit import Audit, audit
from tests.support.cluster.cluster import Cluster
from tests.support.cluster.operator import Operator
from tests.support.processes import until

AT_ONCE: Final = 100
_BEFORE_THE_END: Final = 0.97  # of the inspections have ended when the last kill is due
_PATIENCE: Final = 60.0
_WORKERS: Final = text(
    "SELECT DISTINCT m.pid, m.id FROM members m JOIN requests r ON r.holder = m.id WHERE m.role = 'worker'"
)
_LEADERS: Final = text(
    "SELECT m.pid, m.id, l.name, l.epoch FROM leases l JOIN members m ON m.id = l.holder WHERE l.name LIKE 'periodic/%'"
)
_HELD: Final = text("SELECT inspection, event FROM requests WHERE holder = :member AND inspection IS NOT NULL")
_EPOCH: Final = text("SELECT epoch FROM leases WHERE name = :name AND holder IS NOT NULL")
_ENDS: Final = text("SELECT uuid, finished_at FROM inspections WHERE uuid IN :uuids").bindparams(
    bindparam("uuids", expanding=True)
)


class Kills(msgspec.Struct, frozen=True):
    """How many of each."""

    workers: int
    apis: int
    leaders: int


class Held(msgspec.Struct, frozen=True):
    """An inspection whose request a killed process held; ``at`` is when, by the wall clock of this one host."""

    inspection: str
    event: str
    at: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, what came of it, and how long it took, in seconds."""

    audit: Audit
    kills: dict[str, int]
    held: list[float]
    takeovers: list[float]
    seconds: float
    slowest: float

    def lines(self) -> list[str]:
        """Return everything in lines."""
        found = self.audit
        twice = found.boots_twice + found.processed_twice
        return [
            f"{self.seconds:.0f} s, {found.inspections / self.seconds:.1f} inspections/s, "
            f"the slowest took {self.slowest:.1f} s",
            *(f"{f'SIGKILLs of {role}':>26}  {count}" for role, count in self.kills.items()),
            f"{'accepted':>26}  {found.accepted}",
            f"{'finished':>26}  {found.finished}",
            f"{'in error by own fault':>26}  {found.own_fault}",
            f"{'lost':>26}  {found.lost + found.accepted - found.inspections}",
            f"{'strict tasks done twice':>26}  {twice}",
            f"{'stale writes':>26}  {found.stale_writes}",
            f"{'held by the killed':>26}  {len(self.held)} requests",
            f"{'from kill to finished':>26}  {_seconds(spread(self.held))}",
            f"{'from kill to new leader':>26}  {_seconds(spread(self.takeovers))}",
            "  all counts:",
            *found.lines(),
        ]


def _seconds(found: Spread) -> str:
    return f"{found.p50 / 1000:.2f} / {found.p99 / 1000:.2f} / {found.max / 1000:.2f} s (p50 / p99 / max)"


class Killer(threading.Thread):
    """Kills ``total`` processes of one role, each when its share of the inspections has ended."""

    def __init__(self, role: str, total: int, kill: Callable[[], None], ended: Callable[[], int], all_of: int) -> None:
        super().__init__(name=f"killer of {role}", daemon=True)
        self.role = role
        self.total = total
        self.done = 0
        self.fault: BaseException | None = None
        self.released = threading.Event()
        self._kill = kill
        self._ended = ended
        self._all_of = all_of

    @property
    def share(self) -> float:
        """Which share of the inspections may have been started."""
        return (self.done + 1) / self.total if self.done < self.total else 1.0

    def run(self) -> None:
        try:
            while self.done < self.total:
                self._await(self._all_of * self.done / self.total * _BEFORE_THE_END)
                self._kill()
                self.done += 1
            self.released.wait()  # what this thread has started dies with it
        except BaseException as fault:  # noqa: BLE001  # handed to whoever joins
            self.fault = fault

    def _await(self, ended: float) -> None:
        if not until(lambda: self._ended() >= ended, seconds=600):
            raise RuntimeError(f"only {self._ended()} inspections have ended; the next kill is due at {ended:.0f}")


class Campaign:
    """``run`` does it all and returns the report; progress goes to ``tell``."""

    def __init__(
        self,
        cluster: Cluster,
        kills: Kills,
        inspections: int,
        *,
        seed: int,
        tell: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._cluster = cluster
        self._inspections = inspections
        self._random = random.Random(seed)
        self._tell = tell
        self._engine = engine.build_engine(DatabaseSettings(connection=cluster.database_url))
        self._held: list[Held] = []
        self._takeovers: list[float] = []
        self._killed: set[int] = set()
        self._one = threading.Lock()  # a worker may be a leader: no two killers have one victim
        self._operator = Operator(cluster, rounds=None, at_once=AT_ONCE, limit=self._limit)
        roles = (("workers", kills.workers, self._worker), ("apis", kills.apis, self._api))
        self._killers = [
            Killer(role, total, kill, lambda: self._operator.ended, inspections)
            for role, total, kill in (*roles, ("leaders", kills.leaders, self._leader))
            if total
        ]

    def run(self) -> Report:
        """Inspect and kill; wait for rest; count."""
        began = time.monotonic()
        threads = [self._operator, *self._killers]
        for thread in threads:
            thread.start()
        try:
            told = 0.0
            while any(killer.done < killer.total for killer in self._killers):
                self._raise_faults()
                if time.monotonic() - told > 30:
                    told = time.monotonic()
                    self._tell(self._progress(told - began))
                time.sleep(0.2)
            self._raise_faults()
            if not until(lambda: self._operator.accepted >= self._inspections, seconds=600):
                raise RuntimeError(f"only {self._operator.accepted} inspections were accepted")
            self._operator.finish()
            self._operator.done()
            elapsed = time.monotonic() - began
            self._cluster.settle()
            until(lambda: not self._on())
            return self._report(elapsed)
        finally:
            for killer in self._killers:
                killer.released.set()
            self._engine.dispose()

    def _limit(self) -> int:
        """Return how many inspections may have been asked for by now."""
        share = min((killer.share for killer in self._killers), default=1.0)
        return min(self._inspections, AT_ONCE + int(self._inspections * share))

    def _raise_faults(self) -> None:
        for fault in (self._operator.fault, *(killer.fault for killer in self._killers)):
            if fault is not None:
                raise fault

    def _progress(self, elapsed: float) -> str:
        done = ", ".join(f"{killer.done} {killer.role}" for killer in self._killers)
        return f"{elapsed:5.0f} s: {self._operator.ended} inspections have ended; killed {done}"

    def _on(self) -> bool:
        with self._cluster.counters() as fleet:
            return fleet.status(nodes=False).on > 0

    def _report(self, elapsed: float) -> Report:
        flights = self._operator.flights
        uuids = sorted({held.inspection for held in self._held})
        with self._engine.connect() as connection:
            ends: dict[str, float] = {row[0]: row[1] for row in connection.execute(_ENDS, {"uuids": uuids})}
        return Report(
            audit=audit(self._cluster, self._operator),
            kills={killer.role: killer.done for killer in self._killers},
            held=[ends[held.inspection] - held.at for held in self._held if ends.get(held.inspection)],
            takeovers=self._takeovers,
            seconds=elapsed,
            slowest=max((flight.ended - flight.accepted for flight in flights), default=0.0),
        )

    # The kills.

    def _worker(self) -> None:
        """Kill a worker that holds requests."""
        with self._engine.connect() as connection:
            self._sometime(lambda: self._kill_one(connection, connection.execute(_WORKERS).all(), needs_work=True))

    def _leader(self) -> None:
        """Kill the leader of a periodic task; wait for its successor."""
        with self._engine.connect() as connection:
            name, epoch, killed = self._sometime(
                lambda: self._kill_one(connection, connection.execute(_LEADERS).all(), needs_work=False)
            )

            def succeeded() -> bool:
                found = connection.execute(_EPOCH, {"name": name}).scalar()
                return found is not None and found > epoch

            if not until(succeeded, seconds=_PATIENCE):
                raise RuntimeError(f"nobody leads {name} after epoch {epoch}")
        self._takeovers.append(time.monotonic() - killed)

    def _sometime(self, kill: Callable[[], Any]) -> Any:
        """Try until there is a victim."""
        deadline = time.monotonic() + _PATIENCE
        while (found := kill()) is None:
            if time.monotonic() > deadline:
                raise RuntimeError("there is nobody to kill")
            time.sleep(0.02)
        return found

    def _kill_one(self, connection: Connection, rows: Any, *, needs_work: bool) -> Any:
        """Kill one of the processes; None where there was none. A leader's lease, its epoch and when it died."""
        with self._one:
            rows = [row for row in rows if row.pid not in self._killed]
            if not rows:
                return None
            pid, member, *lease = self._random.choice(rows)
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                return None
            held = connection.execute(_HELD, {"member": member}).all()
            if needs_work and not held:
                os.kill(pid, signal.SIGCONT)
                return None
            os.kill(pid, signal.SIGKILL)
            self._killed.add(pid)
        now = time.time()
        self._held += [Held(inspection, event, now) for inspection, event in held]
        return (*lease, time.monotonic())

    def _api(self) -> None:
        """Kill an api process, never while another one is not back yet, and start it again."""
        api = self._random.choice(self._cluster.apis)
        others = [other for other in self._cluster.apis if other is not api]
        if not until(lambda: all(other.alive and other.ready() for other in others), seconds=_PATIENCE):
            raise RuntimeError("the other api processes do not come back")
        self._cluster.balancer.wait_found()
        api.kill()
        api.start()
