"""Keeps N processes of one role running, and frees at once what a crashed one held.

The parent does no work of its own: it forks children, waits for signals, and when a child has
died tells the database so before it starts the next. A crash then costs well under a second;
only a host that is lost costs the time to live. One that keeps dying is started with growing
pauses, which hold up nothing else. If the parent itself dies, its children stop.
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
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.runtime import system
from ferroscope.runtime.system import notify

if TYPE_CHECKING:
    from ferroscope.runtime.backend import Backend

_log = structlog.get_logger(__name__)

_STOP_SIGNALS: Final = system.stopping()
_WATCHED: Final = (*_STOP_SIGNALS, signal.SIGCHLD)
_PR_SET_PDEATHSIG: Final = 1
# A child that lives shorter than this is started again with a growing pause.
_HEALTHY_AFTER: Final = 5.0
_LONGEST_PAUSE: Final = 10.0
_LOOK_EVERY: Final = 60.0


class Supervisor:
    """``play(member)`` runs in each child, with the id under which it joins, and returns the exit code."""

    def __init__(self, settings: Settings, processes: int, play: Callable[[str], int]) -> None:
        self._settings = settings
        self._processes = processes
        self._play = play
        self._children: dict[int, tuple[str, float]] = {}
        self._due: list[float] = []  # when, by the monotonic clock, a child is to be started
        self._pause = 0.0

    def run(self) -> int:
        """Start the children, restart those that die, until SIGTERM, SIGINT or SIGHUP; return 0."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for _ in range(self._processes):
            self._fork()
        notify("READY=1")  # a child that cannot work is started again, so the service has begun
        while True:
            received = system.wait(_WATCHED, self._patience())
            if received in _STOP_SIGNALS:
                _log.info("stopping", signal=received.name)
                notify("STOPPING=1")
                self._stop()
                return 0
            for member, lived, status in self._reap():
                self._bury(member, status)
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
        os.environ.pop("NOTIFY_SOCKET", None)  # the service manager listens to the parent alone
        if os.getppid() != parent:  # it died before we could ask to be told
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

    def _bury(self, member: str, status: int) -> None:
        """Free whatever the dead child held; if that fails, its heartbeat expires anyway."""
        _log.warning("a process died", member=member, exit_code=os.waitstatus_to_exitcode(status))
        backend = self._backend
        try:
            backend.store.write(lambda tx: tx.members.leave(member))
        except StoreUnavailableError as exc:
            _log.warning("could not free what the dead process held", error=str(exc))
        finally:
            backend.engine.dispose()  # no child shall inherit a connection

    @cached_property
    def _backend(self) -> Backend:
        from ferroscope.runtime.backend import open_backend
        from ferroscope.runtime.system import SystemClock

        return open_backend(self._settings, clock=SystemClock(), stop=threading.Event(), listen=False)

    def _plan(self, lived: float) -> None:
        """Let a child take the place of one that lived so long: at once, or after a pause if that was short."""
        pause = 0.0
        if lived >= _HEALTHY_AFTER:
            self._pause = 0.0
        else:
            pause, self._pause = self._pause, min(_LONGEST_PAUSE, max(0.1, self._pause * 2))
        self._due.append(time.monotonic() + pause)

    def _start_due(self) -> None:
        now = time.monotonic()
        due, self._due = [at for at in self._due if at <= now], [at for at in self._due if at > now]
        for _ in due:
            self._fork()

    def _patience(self) -> float:
        """Return for how long to wait for a signal."""
        return max(0.0, min(self._due) - time.monotonic()) if self._due else _LOOK_EVERY

    def _stop(self) -> None:
        """Ask the children to stop, and kill those that have not done so in time."""
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + self._settings.api.drain_delay + self._settings.worker.graceful_timeout + 5.0
        while self._children and time.monotonic() < deadline:
            system.wait((signal.SIGCHLD,), 0.2)
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
