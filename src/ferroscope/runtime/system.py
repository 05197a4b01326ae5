"""Waiting for signals that are blocked, so that nothing runs at an arbitrary point of a thread."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Collection
from typing import Final

import structlog


def stopping() -> tuple[signal.Signals, ...]:
    """Return the signals that ask a process to stop.

    SIGHUP, of a terminal that is closed, is one, unless it is to be ignored (nohup): blocked signals come all the same.
    """
    told = (signal.SIGTERM, signal.SIGINT)
    return told if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (*told, signal.SIGHUP)


def wait(awaited: Collection[signal.Signals], timeout: float) -> signal.Signals | None:
    """Return which of ``awaited`` came within ``timeout`` seconds; None where none did.

    A process that was stopped (SIGSTOP, a frozen host) until after the time-out gets a result
    from CPython that was never filled in, so only a signal that was awaited counts as one.
    """
    received = signal.sigtimedwait(awaited, timeout)
    if received is None or received.si_signo not in awaited:
        return None
    return signal.Signals(received.si_signo)


# The real clock of this host, and how one notices that the database's was set.

_NOTICED: Final = 10.0  # seconds; what is less is no harm, and may be a host that stood still


class SystemClock:
    """See ``ports.clock.Clock``; CLOCK_BOOTTIME also counts the time of a suspended host."""

    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)


class DatabaseClock:
    """Compares the database's clock, look by look, with the time that has passed here.

    ``set_by`` is by how many seconds it was set, until somebody says that this is ``settled``; ``window`` is how long
    before the look that found it that may have been.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, float, float] | None = None
        self.set_by = 0.0
        self.window = 0.0

    def look(self, now: float, asked_at: float, answered_at: float) -> None:
        """``now`` was the database's answer to a question of this time by our monotonic clock, and of that at most."""
        with self._lock:
            before, self._last = self._last, (now, asked_at, answered_at)
            if before is None:
                return
            went, least, most = now - before[0], asked_at - before[2], answered_at - before[1]
            step = went - min(max(went, least), most)
            if abs(step) >= _NOTICED:
                self.set_by += step
                self.window = most + 1.0

    def settled(self, seconds: float) -> None:
        """What was set by so much is as if it had not been."""
        with self._lock:
            self.set_by -= seconds


# What every process of ours has in common: its name, its errors and exit codes, its word to the service manager.

EXIT_CUT_OFF: Final = 69  # the database did not answer for too long ([database] outage_retries), or its file is gone
EXIT_FAULT: Final = 70  # a thread of this process failed; see the log

_log = structlog.get_logger(__name__)


class StartError(Exception):
    """The process cannot start; the message says why and what to do."""


class SetupError(Exception):
    """Something is configured that cannot work: ``summary`` says what, ``advice`` what to do; the message has both."""

    def __init__(self, summary: str, advice: str = "") -> None:
        super().__init__(f"{summary}; {advice}" if advice else summary)
        self.summary = summary
        self.advice = advice


def process_name(role: str) -> str:
    """Return how this process is called in logs and journals: role, host, pid."""
    return f"{role}@{socket.gethostname()}:{os.getpid()}"


def notify(state: str) -> None:
    """Tell the service manager, if there is one (the sd_notify protocol)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as exc:
            _log.warning("could not notify the service manager", error=str(exc))
