"""Signals, clocks, exit codes and start-up errors, shared by all processes.

Signals are blocked and waited for, so that no handler runs at an arbitrary point of a thread. SIGHUP rereads all
followed files, and the log's options from the configuration.
"""

from __future__ import annotations

import grp
import math
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ferroscope.config import followed
from ferroscope.config.load import ConfigurationError
from ferroscope.config.options import Settings
from ferroscope.contracts.store import StopFlag
from ferroscope.telemetry import log

# SIGHUP rereads files and never ends a process, not even when the terminal closes.
STOPS: Final = (signal.SIGTERM, signal.SIGINT)
AWAITED: Final = (*STOPS, signal.SIGHUP)


def wait(awaited: Collection[signal.Signals], timeout: float) -> signal.Signals | None:
    """Return which of ``awaited`` arrived within ``timeout`` seconds; None if none did.

    If the process was stopped (SIGSTOP, a frozen host) past the timeout, CPython returns an uninitialized result, so
    only an awaited signal counts.
    """
    received = signal.sigtimedwait(awaited, timeout)
    if received is None or received.si_signo not in awaited:
        return None
    return signal.Signals(received.si_signo)


def service_group() -> int | None:
    """Return the group of the installed service, which reads files with secrets; None if no package made it."""
    try:
        return grp.getgrnam("ferroscope").gr_gid
    except KeyError:
        return None


# The clock of this host, and detection of steps of the database's clock.

_MIN_STEP_SECONDS: Final = 10.0  # smaller steps are harmless, and may be a paused host


class SystemClock:
    """See ``contracts.store.Clock``; CLOCK_BOOTTIME also counts the time in which the host was suspended.

    An inspection reads it a hundred times, so it is the system's own function.
    """

    monotonic = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
    time = staticmethod(time.time)


class DatabaseClock:
    """Compares the database's clock with the time that has passed on this host.

    ``set_by``: seconds by which it was set, until ``note_handled``; ``window``: how long before the detecting check
    that may have happened.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, float, float] | None = None
        self.set_by = 0.0
        self.window = 0.0

    def look(self, now: float, asked_at: float, answered_at: float) -> None:
        """Check ``now``, the database's answer to a query sent and answered at these times of our monotonic clock."""
        with self._lock:
            before, self._last = self._last, (now, asked_at, answered_at)
            if before is None:
                return
            passed, min_passed, max_passed = now - before[0], asked_at - before[2], answered_at - before[1]
            step = passed - min(max(passed, min_passed), max_passed)
            if abs(step) >= _MIN_STEP_SECONDS:
                self.set_by += step
                self.window = max_passed + 1.0

    def note_handled(self, seconds: float) -> None:
        """Note that a step of this many seconds was handled."""
        with self._lock:
            self.set_by -= seconds


# Common to all our processes: name, errors, exit codes, and notification of the service manager.

EXIT_CUT_OFF: Final = 69  # database unavailable for too long ([database] outage_retries), or its file is gone
EXIT_FAULT: Final = 70  # a thread of this process failed; see the log

_log = structlog.get_logger(__name__)


def boot_id() -> str | None:
    """Return what identifies this boot of the host; None if it cannot be read."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()[:36] or None
    except OSError:
        return None


def process_name(role: str) -> str:
    """Return the name of this process in logs and journals: role, host, PID."""
    return f"{role}@{socket.gethostname()}:{os.getpid()}"


def notify(state: str) -> None:
    """Notify the service manager, if there is one (the sd_notify protocol)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        try:
            channel.sendto(state.encode(), "\0" + address[1:] if address.startswith("@") else address)
        except OSError as exc:
            _log.warning("cannot notify the service manager", error=str(exc))


class SystemdWatchdog:
    """Notifies the service manager regularly that this process works; it restarts a process that stops doing so.

    ``interval``: seconds between two notifications, half of what the service manager allows; infinite without one.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        allowed, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        is_ours = allowed.isdigit() and pid in ("", str(os.getpid()))
        self.interval = int(allowed) / 2e6 if is_ours else math.inf
        self._clock = clock
        self._due = clock() if is_ours else math.inf

    def ping(self) -> None:
        """Notify the service manager if that is due."""
        now = self._clock()
        if now >= self._due:
            self._due = now + self.interval
            notify("WATCHDOG=1")


def wait_for_stop(stop: StopFlag, reload: Callable[[], object], works: Callable[[], bool] = lambda: True) -> bool:
    """Wait until a signal asks this process to stop, or until ``stop`` is set, because of a fault; return which.

    Meanwhile ``reload`` is called at each SIGHUP, and the service manager is notified as long as it ``works``.
    """
    watchdog = SystemdWatchdog()
    while not stop.is_set():
        if works():
            watchdog.ping()
        received = wait(AWAITED, min(1.0, watchdog.interval))
        if received is signal.SIGHUP:
            reload()
        elif received is not None:
            _log.info("stopping", signal=received.name)
            return True
    return False


Reread = Callable[[], Settings]


class Reload:
    """Configures the log of this process, at the start and at each call. ``reread`` None: there is no configuration.

    ``settings`` are the current ones. Other options than those of the log need a restart.
    """

    def __init__(self, settings: Settings, process: str, reread: Reread | None) -> None:
        self.settings = settings
        self._process = process
        self._reread = reread or (lambda: settings)
        log.configure(settings.log, process=process)

    def __call__(self) -> None:
        try:
            new = self._reread()
        except ConfigurationError as exc:
            _log.error("cannot use the changed configuration; the previous one stays in use", why=str(exc))
        else:
            old, self.settings = self.settings, msgspec.structs.replace(self.settings, log=new.log)
            log.configure(new.log, process=self._process)
            changed = [name for name in new.names if name != "log" and new.section(name) != old.section(name)]
            if changed:
                _log.warning("changes of the configuration need a restart", sections=changed)
        followed.reload()
        _log.info("reloaded")
