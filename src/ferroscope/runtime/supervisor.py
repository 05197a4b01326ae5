"""Keeps N processes of one role running, and at once releases the claims and leases of a crashed one.

The parent does no other work: it forks children and waits for signals. When a child dies, it records that in the
database, then starts the next one. So a crash costs well under a second; only the loss of a host costs the time to
live. A child that keeps dying is restarted with increasing delays. If the parent dies, its children stop.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final

import structlog

from ferroscope.config.options import Settings
from ferroscope.contracts.errors import StoreError
from ferroscope.runtime import system
from ferroscope.runtime.system import SystemdWatchdog, notify

if TYPE_CHECKING:
    from ferroscope.runtime.backend import Backend

_log = structlog.get_logger(__name__)

_WATCHED: Final = (*system.AWAITED, signal.SIGCHLD)
_PR_SET_PDEATHSIG: Final = 1
# A child that lived shorter than this is restarted with an increasing delay.
_HEALTHY_SECONDS: Final = 5.0
_MAX_PAUSE_SECONDS: Final = 10.0
_CHECK_INTERVAL_SECONDS: Final = 60.0


class Supervisor:
    """``play(member)`` runs in each child, with its member ID, and returns the exit code; ``reload`` at SIGHUP."""

    def __init__(
        self,
        settings: Settings,
        processes: int,
        play: Callable[[str], int],
        reload: Callable[[], object] = lambda: None,
    ) -> None:
        self._settings = settings
        self._processes = processes
        self._play = play
        self._reload = reload
        self._children: dict[int, tuple[str, float]] = {}
        self._due: list[float] = []  # monotonic times at which to start a child
        self._pause = 0.0

    def run(self) -> int:
        """Start the children, and restart those that die, until SIGTERM or SIGINT; return 0. SIGHUP is passed on."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for _ in range(self._processes):
            self._fork()
        notify("READY=1")  # failing children are restarted, so the service counts as started
        watchdog = SystemdWatchdog()
        while True:
            watchdog.ping()
            received = system.wait(_WATCHED, min(self._wait_time(), watchdog.interval))
            if received is signal.SIGHUP:
                self._reload()
                self._signal(signal.SIGHUP)
            if received in system.STOPS:
                _log.info("stopping", signal=received.name)
                notify("STOPPING=1")
                self._stop()
                return 0
            for member, lived, status in self._reap():
                self._release_dead(member, status)
                self._plan(lived)
            self._start_due()

    def _fork(self) -> None:
        member = str(uuid.uuid4())
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            os._exit(self._child(parent, member))
        self._children[pid] = (member, time.monotonic())

    def _child(self, parent: int, member: str) -> int:
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os.environ.pop("NOTIFY_SOCKET", None)  # only the parent notifies the service manager
        if os.getppid() != parent:  # the parent died before prctl took effect
            return 0
        try:
            return self._play(member)
        except Exception as exc:  # noqa: BLE001  # the end of the process: say why
            sys.stderr.write(f"Error: {exc}\n")
            return 1
        finally:
            sys.stderr.flush()
            sys.stdout.flush()

    def _reap(self) -> list[tuple[str, float, int]]:
        dead = []
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            member, since = self._children.pop(pid)
            dead.append((member, time.monotonic() - since, status))
        return dead

    def _release_dead(self, member: str, status: int) -> None:
        """Release everything that the dead child held; if that fails, its heartbeat expires.

        A child that stopped because of a database outage, or on request, has not died because of its requests.
        """
        code = os.waitstatus_to_exitcode(status)
        _log.warning("process died", member=member, exit_code=code)
        backend = self._backend
        try:
            backend.store.write(lambda tx: tx.members.leave(member, died=code not in (0, system.EXIT_CUT_OFF)))
        except StoreError as exc:
            _log.warning("cannot release what the dead process held", error=str(exc))
        finally:
            backend.close()  # children must not inherit a connection

    @cached_property
    def _backend(self) -> Backend:
        from ferroscope.runtime.backend import open_backend
        from ferroscope.runtime.system import SystemClock

        return open_backend(self._settings, clock=SystemClock(), stop=threading.Event(), listen=False)

    def _plan(self, lived: float) -> None:
        """Schedule a replacement for a child that lived this long: at once, or delayed if that was short."""
        pause = 0.0
        if lived >= _HEALTHY_SECONDS:
            self._pause = 0.0
        else:
            pause, self._pause = self._pause, min(_MAX_PAUSE_SECONDS, max(0.1, self._pause * 2))
        self._due.append(time.monotonic() + pause)

    def _start_due(self) -> None:
        now = time.monotonic()
        due, self._due = [at for at in self._due if at <= now], [at for at in self._due if at > now]
        for _ in due:
            self._fork()

    def _wait_time(self) -> float:
        """Return how long to wait for a signal, in seconds."""
        return max(0.0, min(self._due) - time.monotonic()) if self._due else _CHECK_INTERVAL_SECONDS

    def _stop(self) -> None:
        """Stop the children, and kill those that do not stop in time."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self._settings.api.drain_delay + self._settings.worker.graceful_timeout + 5.0
        while self._children and time.monotonic() < deadline:
            system.wait((signal.SIGCHLD,), 0.2)
            self._reap()
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._children:  # ended children that were not reaped yet ignore it
            os.kill(pid, number)
