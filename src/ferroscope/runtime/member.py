"""This process as a member: it sends heartbeats, and leaves when it stops.

When a member's heartbeat expires, its claims and leases are released. So heartbeats have a thread of their own, which
continues independently of the workers, and while a stopping process finishes its running tasks.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from ferroscope.config.options import Settings, WorkerSettings
from ferroscope.contracts.errors import ConflictError, StoreError
from ferroscope.contracts.store import Clock, StopFlag
from ferroscope.core import finding
from ferroscope.core.model import ClockStep, Document, Member
from ferroscope.db import Store, Transaction, location
from ferroscope.runtime import system
from ferroscope.runtime.backend import Backend
from ferroscope.runtime.system import DatabaseClock
from ferroscope.telemetry import members
from ferroscope_client.core.database_fault import DatabaseFailure, DatabaseFault
from ferroscope_client.core.finding import Finding

_log = structlog.get_logger(__name__)

# The fraction of the time to live for which a member can be sure that its claims are still its own. The rest is for
# commands that are in flight at the end.
_SURE_FRACTION: Final = 0.75
# One connection that was silent makes all others wait for a second: see ``db.connections.Breaker``.
_LEAVE_SECONDS: Final = 2.0
_LEAVE_RETRY_SECONDS: Final = 0.5
_FORGET_AFTER_SECONDS: Final = 3600.0
_FORGET_INTERVAL_SECONDS: Final = 600.0
_RESTORED_SHOWN_SECONDS: Final = 86_400.0


def _forget(tx: Transaction) -> None:
    """Delete members that died or left long ago, and old clock steps."""
    tx.members.forget(tx.now - _FORGET_AFTER_SECONDS)
    tx.clock_steps.shorten()  # the clock may have been set while no process ran


def _newest_step(tx: Transaction) -> int:
    return max((step.id for step in tx.clock_steps.list()), default=0)


class Membership:
    """Join with ``start``; ``leave`` when nothing is running any more. ``left`` is set before that, and ends the
    thread.

    ``describe(skew, loops)`` returns more data to publish (``Member.detail``). After ``retries`` consecutive failed
    heartbeats (0: never) the process is stopped and ``cut_off`` is true: its claims have expired by then, and a new
    process shows whether the fault was in this one. ``failed``: set if it stops after an unexpected error, which may be
    due to a request that it still holds. The same happens if ``lost`` reports, at a heartbeat, that the
    database is not the one that was opened.
    """

    def __init__(
        self,
        store: Store,
        settings: WorkerSettings,
        *,
        role: str,
        stop: StopFlag,
        clock: Clock,
        ident: str = "",
        describe: Callable[[float | None, Mapping[str, str]], Document] | None = None,
        retries: int = 0,
        lost: Callable[[], str] = lambda: "",
        left: StopFlag | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._stop = stop
        self._left = left or threading.Event()
        self._clock = clock
        self._describe = describe
        self._retries = retries
        self._lost = lost
        self._missed = 0
        self._failure: DatabaseFailure | None = None  # of the last heartbeat
        self._beaten = clock.monotonic()
        self._forget_at = clock.monotonic() + _FORGET_INTERVAL_SECONDS
        self._sure_between = -math.inf, -math.inf
        self.cut_off = False
        self.failed = False
        self._loops: dict[str, Callable[[], str]] = {}
        self._values: dict[str, Callable[[], Any]] = {}
        self._problems: dict[str, Callable[[], Sequence[Finding]]] = {}
        self._skew: float | None = None
        self._database_clock = DatabaseClock()
        self._clock_steps = 0  # the ID of the last known one
        self.member = Member(
            id=ident or str(uuid.uuid4()), host=socket.gethostname(), pid=os.getpid(), role=role, boot=system.boot_id()
        )
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def watch(self, loop: str, status: Callable[[], str], problem: Callable[[], Finding | None] = lambda: None) -> None:
        """Publish the status of this loop, and its problem, from the next heartbeat on."""
        self._loops = self._loops | {loop: status}
        self.watch_problem(loop, problem)

    def watch_problem(self, name: str, problem: Callable[[], Finding | None]) -> None:
        """Publish this problem, while there is one."""
        self.watch_problems(name, lambda: () if (finding := problem()) is None else (finding,))

    def watch_problems(self, name: str, problems: Callable[[], Sequence[Finding]]) -> None:
        """Publish these problems, while there are any."""
        self._problems = self._problems | {name: problems}

    def publish(self, name: str, value: Callable[[], Any]) -> None:
        """Publish this value as part of the member's detail, from the next heartbeat on."""
        self._values = self._values | {name: value}

    def start(self) -> None:
        """Join, and start the heartbeat thread; ``StoreUnavailableError``."""
        restored = self._store.read(lambda tx: finding.left_running(tx.members.list(), tx.now))
        if restored is not None:
            _log.warning(restored.summary)
            until = self._clock.monotonic() + _RESTORED_SHOWN_SECONDS
            self.watch_problem("restored", lambda: restored if self._clock.monotonic() < until else None)
        self._beat()
        self._forget()
        self._clock_steps = self._store.read(_newest_step)
        self._thread.start()

    def read_write_failure(self, *, at_once: bool = False) -> DatabaseFailure | None:
        """Return why no heartbeat was written recently, such as a full disk or a locked database; None if one was.

        ``at_once``: also why the last one was not written.
        """
        age = self._clock.monotonic() - self._beaten
        # Twice the period: if the host is merely busy, a load balancer must not remove one process after the other.
        if age < (1 if at_once else 2) * self._settings.member_ttl and not (at_once and self._failure):
            return None
        message = f"no heartbeat has been confirmed for {age:.0f} s"
        return self._failure or DatabaseFailure(DatabaseFault.UNAVAILABLE, message)

    def claim_valid_for(self, confirmed_at: float) -> float:
        """Return for how many seconds claims that were confirmed at that monotonic time are certainly ours, or 0."""
        since, until = self._sure_between
        return max(0.0, until - self._clock.monotonic()) if confirmed_at >= since else 0.0

    def leave(self) -> None:
        """Release at once everything that this process still holds."""
        self._left.set()
        self._thread.join(self._settings.heartbeat_seconds)
        deadline = self._clock.monotonic() + _LEAVE_SECONDS
        while True:
            try:
                self._store.write(lambda tx: tx.members.leave(self.member.id, died=self.failed))
            except StoreError as exc:
                if self._clock.monotonic() < deadline:
                    time.sleep(_LEAVE_RETRY_SECONDS)
                    continue
                _log.warning("cannot leave; the heartbeat will expire", error=str(exc))
            return

    def _beat(self) -> None:
        statuses = {name: status() for name, status in self._loops.items()}
        detail = {} if self._describe is None else self._describe(self._skew, statuses)
        if self._values:
            detail = detail | {name: value() for name, value in self._values.items()}
        if problems := [finding for read_problems in self._problems.values() for finding in read_problems()]:
            detail = detail | {"problems": [msgspec.to_builtins(finding) for finding in problems]}
        if self._stop.is_set():
            detail = detail | {"stopping": True}
        member = msgspec.structs.replace(self.member, status=members.summary(statuses), detail=detail)

        def work(tx: Transaction) -> tuple[float, float]:
            ahead = self._clock.time() - tx.now  # too large by at most one round trip
            tx.members.beat(member, self._settings.member_ttl)
            return ahead, tx.now

        asked_at = self._clock.monotonic()
        self._skew, now = self._store.write(work, durable=False)
        self._beaten = self._clock.monotonic()
        since, until = self._sure_between
        # After a gap, others may have taken claims that were confirmed before it, although this member is alive again.
        since = since if self._beaten <= until else self._beaten
        self._sure_between = since, asked_at + _SURE_FRACTION * self._settings.member_ttl
        self._database_clock.look(now, asked_at, self._beaten)
        if self._database_clock.set_by:
            self._record_step()

    def in_doubt(self) -> str:
        """Return why work that depends on the database's clock must wait, or ""; ``StoreUnavailableError``."""
        asked_at = self._clock.monotonic()
        now = self._store.read(lambda tx: tx.now)
        self._database_clock.look(now, asked_at, self._clock.monotonic())
        seconds = self._database_clock.set_by
        return f"waiting: the database's clock was set by {seconds:+.0f} s" if seconds else ""

    def _record_step(self) -> None:
        """Record a step of the database's clock; the first member that detects it shifts the stored times."""
        seconds, name = self._database_clock.set_by, self.member.name
        step = ClockStep(id=self._clock_steps + 1, seconds=seconds, process=name[:128])
        try:
            self._store.write(lambda tx: tx.clock_steps.record(step, self._database_clock.window))
            _log.warning("the database's clock was set; stored times were adjusted", seconds=round(seconds, 1))
        except ConflictError:
            _log.debug("another process has recorded the step of the database's clock")
        self._clock_steps = self._store.read(_newest_step)
        self._database_clock.note_handled(seconds)

    def _forget(self) -> None:
        """Clean up here, because there may never be another start."""
        self._store.write(_forget, durable=False)
        self._forget_at = self._clock.monotonic() + _FORGET_INTERVAL_SECONDS

    def _miss(self, exc: StoreError) -> None:
        self._missed += 1
        self._failure = exc.failure
        if self._missed == self._retries:
            self._cut_off("the database has been unavailable for too long")
        _log.warning("heartbeat missed", error=str(exc), in_a_row=self._missed)

    def _cut_off(self, why: str) -> None:
        self.cut_off = True
        self._stop.set()
        _log.error("stopping the process", why=why)

    def _run(self) -> None:
        try:
            # Leave only when the process stops: others would claim its running work, and do it twice.
            while not self.cut_off and not self._left.wait(self._settings.heartbeat_seconds):
                try:
                    if why := self._lost():
                        self._cut_off(why)
                        return
                    self._beat()
                    self._missed, self._failure = 0, None
                    if self._clock.monotonic() >= self._forget_at:
                        self._forget()
                except StoreError as exc:
                    self._miss(exc)
        except Exception:
            self._stop.set()
            _log.exception("heartbeat failed; stopping the process")
            raise
        finally:
            # Without heartbeats others would take over our work while we still do it.
            self._stop.set()


def membership_of(
    settings: Settings,
    backend: Backend,
    schema: str,
    *,
    role: str,
    roles: Sequence[str],
    clock: Clock,
    stop: StopFlag,
    ident: str = "",
) -> Membership:
    """Return the membership of a process with these roles, not started. It reports problems of the backend."""
    membership = Membership(
        backend.lease_store,
        settings.worker,
        role=role,
        stop=stop,
        clock=clock,
        ident=ident,
        describe=members.describer(settings, roles, schema),
        retries=settings.database.outage_retries,
        lost=location.watched(settings.database),
    )
    membership.watch_problem("database", lambda: finding.lost_commits(backend.memory.proofs()))
    if backend.rabbitmq is not None:
        membership.watch_problem("bus", backend.rabbitmq.problem)
    return membership
