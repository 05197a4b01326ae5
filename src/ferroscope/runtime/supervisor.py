"""Keeps N processes of one role running, and frees at once what a crashed one held.

The parent does no work of its own: it forks children, waits for signals, and when a child has
died tells the database so before it starts the next. A crash then costs well under a second;
only a host that is lost costs the time to live. If the parent itself dies, its children stop.
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
from typing import Final

import structlog

from ferroscope.config.settings import Settings
from ferroscope.ports.errors import StoreUnavailableError
from ferroscope.runtime import signals
from ferroscope.runtime.process import notify

_log = structlog.get_logger(__name__)

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_WATCHED: Final = (*_STOP_SIGNALS, signal.SIGCHLD)
_PR_SET_PDEATHSIG: Final = 1
# A child that lives shorter than this is started again with a growing pause.
_HEALTHY_AFTER: Final = 5.0
_LONGEST_PAUSE: Final = 10.0


class Supervisor:
    """``play(member)`` runs in each child, with the id under which it joins, and returns the exit code."""

    def __init__(self, settings: Settings, processes: int, play: Callable[[str], int]) -> None:
        self._settings = settings
        self._processes = processes
        self._play = play
        self._children: dict[int, tuple[str, float]] = {}
        self._pause = 0.0

    def run(self) -> int:
        """Start the children, restart those that die, until SIGTERM or SIGINT; return 0."""
        signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
        for _ in range(self._processes):
            self._fork()
        notify("READY=1")  # a child that cannot work is started again, so the service has begun
        while True:
            received = signal.sigwait(_WATCHED)
            if received in _STOP_SIGNALS:
                _log.info("stopping", signal=signal.Signals(received).name)
                notify("STOPPING=1")
                self._stop()
                return 0
            for member, lived, status in self._reap():
                self._bury(member, status)
                if self._rest(lived):
                    self._stop()
                    return 0
                self._fork()

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
        from ferroscope.runtime.backend import open_backend
        from ferroscope.runtime.clock import SystemClock

        backend = open_backend(self._settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        try:
            backend.store.write(lambda tx: tx.members.leave(member))
        except StoreUnavailableError as exc:
            _log.warning("could not free what the dead process held", error=str(exc))
        finally:
            backend.close()

    def _rest(self, lived: float) -> bool:
        """Pause before a child that keeps dying is started again; whether to stop instead."""
        if lived >= _HEALTHY_AFTER:
            self._pause = 0.0
            return False
        pause, self._pause = self._pause, min(_LONGEST_PAUSE, max(0.1, self._pause * 2))
        return pause > 0 and signals.wait(_STOP_SIGNALS, pause) is not None

    def _stop(self) -> None:
        """Ask the children to stop, and kill those that have not done so in time."""
        for pid in self._children:
            os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + self._settings.api.drain_delay + self._settings.worker.graceful_timeout + 5.0
        while self._children and time.monotonic() < deadline:
            signals.wait((signal.SIGCHLD,), 0.2)
            self._reap()
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
