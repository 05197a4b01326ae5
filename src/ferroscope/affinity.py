"""Keeps a busy process on one processor at a time, the one that others use least; an idle one may use all.

The interpreter runs one thread of a process at a time. A thread that waits for SQLite or a socket lets another one run,
and the kernel wakes that one up on another processor: both wait for the interrupt, and what the caches held has to be
fetched again. On one processor the thread has often gone on before the other one is awake. See ADR 079.

``sched_setaffinity(2)`` is the kernel's for each thread, and is inherited by new ones and by programs that are started.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import msgspec
import structlog

from ferroscope.contracts.queue import StopFlag

# Shares of a processor: from how much on a process is busy, until it has been idle for long, and what makes it move.
_BUSY: Final = 0.4
_IDLE: Final = 0.1
_GAIN: Final = 0.2
# A processor with this use is full. Where others need all, a process must be able to use what is left of each.
_FULL: Final = 0.9
_SHARED: Final = 0.3
# What a process uses if some of its work does not hold the interpreter's lock, such as searches of SQLite: one
# processor would not do. After so many looks at which it has filled its own, it may use all for one look.
_PARALLEL: Final = 1.3
_TRY: Final = 5
# Looks of which the use before counts: after half a minute without work a process is idle.
_LATELY: Final = 10
# Seconds: between two looks at the processors, and for which each is looked at.
_PAUSE: Final = 1.0
_LOOK: Final = 0.3
_STAT: Final = Path("/proc/stat")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Of the times in /proc/stat, those in which a processor did nothing: idle and iowait. See proc_stat(5).
_NOTHING: Final = (3, 4)

_log = structlog.get_logger(__name__)

# Those that this process may use: what its service manager or container allows.
ALLOWED: Final = frozenset(os.sched_getaffinity(0))


class Use(msgspec.Struct, frozen=True):
    """``own``: processors used by this process, now and ``lately``; ``busy``: by processor, how much was not idle."""

    own: float
    lately: float
    busy: Mapping[int, float]


def chosen(use: Use, present: int | None, process: int = 0) -> int | None:
    """Return the processor to keep to, which may be the ``present`` one; None: any of them.

    Of several that are used as little, each ``process`` prefers another one: many may be started at the same time.
    """
    idle = use.own < _BUSY if present is None else use.lately < _IDLE
    if idle or use.own > _PARALLEL or not use.busy:
        return None
    # Tenths, as a look is too short to tell less.
    best = min(use.busy, key=lambda number: (round(use.busy[number], 1), (number - process) % len(use.busy)))
    if present is None or present not in use.busy:
        return best if use.busy[best] < _FULL else None
    others = use.busy[present] - use.own
    if use.busy[best] + _GAIN < others:
        return best
    return present if others < _SHARED else None


class _Times(msgspec.Struct, frozen=True):
    """Seconds since some moment: of the clock, of this process's use, and by processor of being idle."""

    at: float
    own: float
    idle: Mapping[int, float]


def _times(stat: str, ticks: int) -> _Times:
    """``stat``: /proc/stat, in which a second has so many ``ticks``."""
    idle = {}
    for line in stat.splitlines():
        name, _, numbers = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in ALLOWED:
            times = numbers.split()
            idle[int(name[3:])] = sum(int(times[place]) for place in _NOTHING) / ticks
    return _Times(time.monotonic(), time.process_time(), idle)


def _between(before: _Times, after: _Times, lately: float) -> Use:
    seconds = max(after.at - before.at, 0.001)
    busy = {
        number: min(1.0, max(0.0, 1 - (idle - before.idle[number]) / seconds))
        for number, idle in after.idle.items()
        if number in before.idle
    }
    return Use((after.own - before.own) / seconds, lately, busy)


class Keeper:
    """Looks once a second; whatever goes wrong, the process may use all processors again."""

    def __init__(self, stop: StopFlag) -> None:
        self._stop = stop
        self.present: int | None = None
        self._full = 0  # looks in succession at which the process has filled its processor

    def start(self) -> None:
        """Do nothing where there is no choice."""
        if len(ALLOWED) > 1 and _STAT.exists():
            threading.Thread(target=self._run, name="affinity", daemon=True).start()

    def _run(self) -> None:
        try:
            at, own, lately = time.monotonic(), time.process_time(), 0.0
            while not self._stop.wait(_varied(_PAUSE)):
                share = (time.process_time() - own) / max(time.monotonic() - at, 0.001)
                at, own = time.monotonic(), time.process_time()
                lately = share if self.present is None else lately + (share - lately) / _LATELY
                if self.present is None and share < _BUSY:
                    continue
                self._full = self._full + 1 if self.present is not None and share > _FULL else 0
                if self._full > _TRY:
                    self._keep_to(None)
                    self._full = 0
                before = _times(_STAT.read_text(encoding="ascii"), _TICKS)
                self._stop.wait(_varied(_LOOK))
                after = _times(_STAT.read_text(encoding="ascii"), _TICKS)
                self._keep_to(chosen(_between(before, after, lately), self.present, os.getpid()))
        except (OSError, ValueError, IndexError) as exc:  # hidden, or another form, as in some containers
            _log.debug("cannot tell which processor is busy; using all", error=str(exc))
        finally:
            self._keep_to(None)

    def _keep_to(self, number: int | None) -> None:
        """Confine all threads, each time: some may have been started by one that had not been confined yet."""
        if number is None and self.present is None:
            return
        self.present = number
        for thread in Path("/proc/self/task").iterdir():
            _allow(int(thread.name), ALLOWED if number is None else {number})


def _varied(seconds: float) -> float:
    """Two processes that are started together must not look at the same time, and both move."""
    return seconds * random.uniform(0.7, 1.3)  # noqa: S311  # jitter, no secret


def _allow(thread: int, processors: Collection[int]) -> None:
    """Let the thread run on these processors; 0: this one."""
    # It may have ended, and what the process may use can be changed from outside.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(thread, processors)


def unconfine() -> None:
    """Let the program that this thread is about to start use all processors.

    The thread keeps that until the next look, which confines all threads again if the process still keeps to one.
    """
    _allow(0, ALLOWED)
