"""This process as a member: it sends heartbeats, and leaves when it stops.

When a member's heartbeat expires, its claims and leases are released. So heartbeats have their own thread, which
continues whatever the workers do, and also while a stopping process finishes its running tasks.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from ferroscope.config import load
from ferroscope.config.options import DatabaseSettings, WorkerSettings
from ferroscope.contracts.errors import ConflictError, StoreUnavailableError
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.store import Store, Transaction
from ferroscope.core.model import ClockStep, Document, Member
from ferroscope.db.url import DatabaseUrlError, checked, hosts
from ferroscope.runtime.system import DatabaseClock
from ferroscope.telemetry import members
from ferroscope.telemetry.finding import Finding

_log = structlog.get_logger(__name__)

# The fraction of the time to live for which a member can be sure that its claims are still its own. The rest is for
# commands that are in flight when that ends.
_SURE: Final = 0.75
_FORGOTTEN_AFTER: Final = 3600.0
_FORGET_EVERY: Final = 600.0


def _forget(tx: Transaction) -> None:
    """Delete members that died or left long ago, and old clock steps."""
    tx.members.forget(tx.now - _FORGOTTEN_AFTER)
    tx.clock_steps.shorten()  # the clock may have been set while no process ran


def _newest_step(tx: Transaction) -> int:
    return max((step.id for step in tx.clock_steps.list()), default=0)


class Membership:
    """Join with ``start``; ``leave`` when nothing is running any more. ``left`` is set before that, and ends the
    thread.

    ``describe(skew, loops)`` returns more data to publish (``Member.detail``). After ``retries`` consecutive failed
    heartbeats (0: never) the process is stopped and ``cut_off`` is true: its claims have expired by then, and a new
    process shows whether the fault was in this one. The same happens if ``lost`` reports, at a heartbeat, that the
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
        self._beaten = clock.monotonic()
        self._forget_at = clock.monotonic() + _FORGET_EVERY
        self._sure_between = -math.inf, -math.inf
        self.cut_off = False
        self._loops: dict[str, Callable[[], str]] = {}
        self._values: dict[str, Callable[[], Any]] = {}
        self._problems: dict[str, Callable[[], Finding | None]] = {}
        self._skew: float | None = None
        self._database_clock = DatabaseClock()
        self._clock_steps = 0  # the ID of the last known one
        self.member = Member(id=ident or str(uuid.uuid4()), host=socket.gethostname(), pid=os.getpid(), role=role)
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def watch(self, loop: str, status: Callable[[], str], problem: Callable[[], Finding | None] = lambda: None) -> None:
        """Publish the status of this loop, and its problems, from the next heartbeat on."""
        self._loops = self._loops | {loop: status}
        self._problems = self._problems | {loop: problem}

    def watch_problem(self, name: str, problem: Callable[[], Finding | None]) -> None:
        """Publish this problem, while there is one."""
        self._problems = self._problems | {name: problem}

    def publish(self, name: str, value: Callable[[], Any]) -> None:
        """Publish this value as part of the member's detail, from the next heartbeat on."""
        self._values = self._values | {name: value}

    def start(self) -> None:
        """Join, and start the heartbeat thread; ``StoreUnavailableError``."""
        self._beat()
        self._forget()
        self._clock_steps = self._store.read(_newest_step)
        self._thread.start()

    def can_write(self) -> bool:
        """Whether a heartbeat was written recently; if not, the disk is full or the database is locked."""
        # Twice the period: if the host is merely busy, a load balancer must not remove one process after the other.
        return self._clock.monotonic() - self._beaten < 2 * self._settings.member_ttl

    def claim_valid_for(self, confirmed_at: float) -> float:
        """Return for how many seconds claims that were confirmed at that monotonic time are surely still ours, or 0."""
        since, until = self._sure_between
        return max(0.0, until - self._clock.monotonic()) if confirmed_at >= since else 0.0

    def leave(self) -> None:
        """Release at once everything that this process still holds."""
        self._left.set()
        self._thread.join(self._settings.heartbeat_interval)
        try:
            self._store.write(lambda tx: tx.members.leave(self.member.id))
        except StoreUnavailableError as exc:
            _log.warning("cannot leave; the heartbeat will expire", error=str(exc))

    def _beat(self) -> None:
        statuses = {name: status() for name, status in self._loops.items()}
        detail = {} if self._describe is None else self._describe(self._skew, statuses)
        if self._values:
            detail = detail | {name: value() for name, value in self._values.items()}
        if problems := [found for problem in self._problems.values() if (found := problem()) is not None]:
            detail = detail | {"problems": [msgspec.to_builtins(found) for found in problems]}
        member = msgspec.structs.replace(self.member, status=members.summary(statuses), detail=detail)

        def work(tx: Transaction) -> tuple[float, float]:
            ahead = self._clock.time() - tx.now  # too large by at most one round trip
            tx.members.beat(member, self._settings.member_ttl)
            return ahead, tx.now

        asked_at = self._clock.monotonic()
        self._skew, now = self._store.write(work, durable=False)
        self._beaten = self._clock.monotonic()
        since, until = self._sure_between
        # After a gap, others may have taken what was confirmed before it, although this member counts as alive again.
        since = since if self._beaten <= until else self._beaten
        self._sure_between = since, asked_at + _SURE * self._settings.member_ttl
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
        seconds, name = self._database_clock.set_by, members.name_of(self.member)
        step = ClockStep(id=self._clock_steps + 1, seconds=seconds, process=name[:128])
        try:
            self._store.write(lambda tx: tx.clock_steps.record(step, self._database_clock.window))
            _log.warning("the database's clock was set; stored times were adjusted", seconds=round(seconds, 1))
        except ConflictError:
            _log.debug("another process has recorded the step of the database's clock")
        self._clock_steps = self._store.read(_newest_step)
        self._database_clock.settled(seconds)

    def _forget(self) -> None:
        """Clean up here, because there may never be another start."""
        self._store.write(_forget, durable=False)
        self._forget_at = self._clock.monotonic() + _FORGET_EVERY

    def _miss(self, exc: StoreUnavailableError) -> None:
        self._missed += 1
        if self._missed == self._retries:
            self._cut_off("the database has been unavailable for too long")
        _log.warning("heartbeat missed", error=str(exc), in_a_row=self._missed)

    def _cut_off(self, why: str) -> None:
        self.cut_off = True
        self._stop.set()
        _log.error("stopping the process", why=why)

    def _run(self) -> None:
        try:
            # Leave only when the process stops: what it still works on would be claimed by others and done twice.
            while not self.cut_off and not self._left.wait(self._settings.heartbeat_interval):
                try:
                    if why := self._lost():
                        self._cut_off(why)
                        return
                    self._beat()
                    self._missed = 0
                    if self._clock.monotonic() >= self._forget_at:
                        self._forget()
                except StoreUnavailableError as exc:
                    self._miss(exc)
        except Exception:
            self._stop.set()
            _log.exception("heartbeat failed; stopping the process")
            raise
        finally:
            # Without heartbeats others would take over our work while we still do it.
            self._stop.set()


# The location of the database, and whether SQLite's file is still the one that was opened.
#
# Data written to a deleted file is lost when it is closed, and a database at another path than before goes unnoticed
# until data is missed. So the start logs the location, and warns of a file that earlier releases would have used.


def file_of(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file; None for another database, or for an invalid URL, which is reported when it is opened."""
    try:
        url = checked(settings.connection)
    except DatabaseUrlError:
        return None
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def missing(settings: DatabaseSettings) -> Path | None:
    """Return SQLite's file if it does not exist; commands that only read must not create it."""
    path = file_of(settings)
    return None if path is None or path.exists() else path


def place(settings: DatabaseSettings) -> str:
    """Return the location of the database, without user, password and options; the URL must be valid."""
    url = checked(settings.connection)
    servers = hosts(url)
    if not servers:
        file = file_of(settings)
        return f"{url.get_backend_name()} {url.database if file is None else file.absolute()}"
    return f"{url.get_backend_name()} {url.database} at {', '.join(servers)}"


def make_directory(settings: DatabaseSettings) -> None:
    """Create the default directory if it does not exist; ``OSError``."""
    file = file_of(settings)
    if file is not None and file == load.default_database():
        # The system directory is shared with the files for boot hosts; only the owner can read the database file.
        file.parent.mkdir(mode=0o755 if file.parent == load.STATE_DIRECTORY else 0o700, parents=True, exist_ok=True)


def left_behind(settings: DatabaseSettings) -> Path | None:
    """Return the file in the working directory that earlier releases used by default, if it is not the one in use."""
    file, old = file_of(settings), Path(load.DATABASE_NAME).absolute()
    if file is None or file != load.default_database() or not old.is_file():
        return None
    return None if file.exists() and file.samefile(old) else old


def announce(settings: DatabaseSettings, log: Any) -> None:
    """Log the location of the database, and of one that is no longer used."""
    log.info("database", place=place(settings))
    if old := left_behind(settings):
        log.warning(
            "this directory has a database of an earlier release, which is not used; "
            f"to use it: --database sqlite:///{old}, or stop the service and move it",
            old=str(old),
            to=str(file_of(settings)),
        )


def watched(settings: DatabaseSettings) -> Callable[[], str]:
    """Return a function that says what happened to the file since now; "" while it is the same."""
    path = file_of(settings)
    if path is None:
        return lambda: ""
    opened = _identity(path)

    def look() -> str:
        present = _identity(path)
        if present == opened:
            return ""
        what = "was deleted" if present is None else "was replaced"
        return f"the database file {path} {what}; further writes would be lost"

    return look


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file, which is not reused while a connection has it open."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
