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
import socket
import threading
import time
import zlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import structlog

from ferroscope.contracts.store import StopFlag

# Shares of a processor: from how much on a process is busy, until it has been idle for long, and what makes it move.
_BUSY_SHARE: Final = 0.4
_IDLE_SHARE: Final = 0.1
_MIN_GAIN_SHARE: Final = 0.2
# Of which use on a processor is full; and what others may use of the one that a process keeps to: else it must be able
# to use what is left of each.
_FULL_SHARE: Final = 0.9
_MAX_OTHERS_SHARE: Final = 0.3
# What a process uses if some of its work does not hold the interpreter's lock, such as searches of SQLite: one
# processor would not do. After so many looks that have found its own full, it may use all for one look.
_PARALLEL_SHARE: Final = 1.3
_FULL_LOOKS: Final = 10
# Looks of which the use before counts: after half a minute without work a process is idle.
_SMOOTHED_LOOKS: Final = 20
# After so many times of giving its processor up to others it looks more rarely, in the end after so many pauses.
_PATIENT_GIVE_UPS: Final = 4
_MAX_GIVE_UPS: Final = 9.0
_MAX_PAUSES: Final = 32  # 2 to the power of the difference
# Seconds: between two looks at the processors, and for which each is looked at.
_PAUSE_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.3
_STAT: Final = Path("/proc/stat")
_THREADS: Final = "/proc/self/task"
_SIBLINGS: Final = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Of the times in /proc/stat, those in which a processor did nothing, idle and iowait, and the one that a hypervisor
# took, which cannot be won by moving. See proc_stat(5).
_NOTHING: Final = slice(3, 5)
_STOLEN: Final = slice(7, 8)
# Threads that are started while all others are confined, or freed, may be missed: they are looked for so often.
_MAX_PASSES: Final = 4
_LAST_PASS_SECONDS: Final = 0.1  # until they are looked for once more at the end

_log = structlog.get_logger(__name__)


class Use(msgspec.Struct, frozen=True):
    """``own``: processors used by this process, now and ``lately``; ``busy``: by processor, how much was not idle."""

    own: float
    lately: float
    busy: Mapping[int, float]


def choose_processor(
    use: Use, present: int | None, prefers: int = 0, siblings: Mapping[int, Collection[int]] | None = None
) -> int | None:
    """Return the processor to keep to, which may be the ``present`` one; None: any of them.

    Of several that are used as little, one is taken whose ``siblings`` on the same core are, too. Of those, each
    process ``prefers`` another one: many may be started at the same time.
    """
    idle = use.own < _BUSY_SHARE if present is None else use.lately < _IDLE_SHARE
    if idle or use.own > _PARALLEL_SHARE or not use.busy:
        return None
    places = {number: place for place, number in enumerate(sorted(use.busy))}

    def key(number: int) -> tuple[float, float, int]:
        beside = max(
            (use.busy.get(sibling, 0.0) for sibling in (siblings or {}).get(number, ()) if sibling != number),
            default=0.0,
        )
        # Tenths, as a look is too short to tell less.
        return round(use.busy[number], 1), round(beside, 1), (places[number] - prefers) % len(places)

    best = min(use.busy, key=key)
    if present is None or present not in use.busy:
        # Whether others leave as much as one. What this process uses itself is somewhere among all.
        others = sum(use.busy.values()) - use.own
        return best if others < len(use.busy) - _FULL_SHARE else None
    others = use.busy[present] - use.own
    if use.busy[best] + _MIN_GAIN_SHARE < others:
        return best
    return present if others < _MAX_OTHERS_SHARE else None


class _Times(msgspec.Struct, frozen=True):
    """Seconds since some moment: of the clock, of this process's use, and by processor of being idle."""

    at: float
    own: float
    idle: Mapping[int, float]


def _read_times(stat: str, ticks: int, allowed: Collection[int]) -> _Times:
    """``stat``: /proc/stat, in which a second has so many ``ticks``."""
    idle = {}
    for line in stat.splitlines():
        name, _, numbers = line.partition(" ")
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in allowed:
            times = [int(number) for number in numbers.split()]
            if len(times) < _NOTHING.stop:
                raise LookupError("it has too few numbers")
            idle[int(name[3:])] = (sum(times[_NOTHING]) + sum(times[_STOLEN])) / ticks
    return _Times(time.monotonic(), time.process_time(), idle)


def _measure_use(before: _Times, after: _Times, lately: float) -> Use:
    seconds = max(after.at - before.at, 0.001)
    busy = {
        number: min(1.0, max(0.0, 1 - (idle - before.idle[number]) / seconds))
        for number, idle in after.idle.items()
        if number in before.idle
    }
    return Use((after.own - before.own) / seconds, lately, busy)


class _AffinityForbiddenError(Exception):
    """The service may not choose its processor."""


class Keeper:
    """Looks every 0.8 s while the process is busy, or more rarely. A process has one.

    Whatever goes wrong, the process may use all processors again. ``allowed`` are those that its threads may use when
    it is freed; None while it is not confined: then the kernel knows them.
    """

    allowed: ClassVar[frozenset[int] | None] = None

    def __init__(self, stop: StopFlag) -> None:
        self._stop = stop
        self.present: int | None = None
        # Looks in succession that have found its processor full, or needed by others.
        self._full = self._needed = 0
        self._given_up = 0.0  # how often others have needed it, lately
        self._rest = 0  # pauses until the next look
        # In containers, processes of one host have the same ID, and other names of hosts.
        self._prefers = os.getpid() + zlib.crc32(socket.gethostname().encode())
        self._siblings: Mapping[int, Collection[int]] = {}

    def start(self) -> None:
        """Do nothing where there is no choice."""
        if len(os.sched_getaffinity(0)) > 1:
            threading.Thread(target=self.run, name="affinity", daemon=True).start()

    def run(self) -> None:
        """Look until the process stops, or it is found that the service may not choose."""
        self._siblings = _siblings_of(os.sched_getaffinity(0))
        at, own, lately = time.monotonic(), time.process_time(), 0.0
        try:
            while not self._stop.wait(_vary(_PAUSE_SECONDS)):
                share = (time.process_time() - own) / max(time.monotonic() - at, 0.001)
                at, own = time.monotonic(), time.process_time()
                lately = share if self.present is None else lately + (share - lately) / _SMOOTHED_LOOKS
                if self.present is None:
                    self._keep_to(None)  # threads that were started while the others were freed
                    self._rest -= self._rest > 0
                    if self._rest or share < _BUSY_SHARE:
                        continue
                try:
                    self._look(lately)
                except (OSError, ValueError, LookupError) as exc:  # no file descriptor, or hidden as in some containers
                    _log.debug("cannot tell which processor is busy; using all", error=str(exc))
                    self._keep_to(None)
                    self._rest = _MAX_PAUSES
        except _AffinityForbiddenError as exc:
            _log.info("the service may not choose its processor, so it uses all", error=str(exc))
        finally:
            self._keep_to(None)
            time.sleep(_LAST_PASS_SECONDS)
            self._keep_to(None)
            Keeper.allowed = None

    def _look(self, lately: float) -> None:
        back = self.present if self._full >= _FULL_LOOKS else None
        if back is not None:
            self._keep_to(None)
            self._full = 0
        allowed = os.sched_getaffinity(0) if self.present is None or self.allowed is None else self.allowed
        before = _read_times(_STAT.read_text(encoding="ascii"), _TICKS, allowed)
        if self.present is None and before.idle.keys() < allowed:
            raise LookupError("it has other numbers than the kernel's")  # lxcfs counts those of a container from 0
        self._stop.wait(_vary(_LOOK_SECONDS))
        use = _measure_use(before, _read_times(_STAT.read_text(encoding="ascii"), _TICKS, allowed), lately)
        present = self.present
        number = back if use.own <= _PARALLEL_SHARE else None
        if back is None:
            number = choose_processor(use, present, self._prefers, self._siblings)
        self._full = self._full + 1 if present is not None and use.busy.get(present, 0.0) > _FULL_SHARE else 0
        if present is None or number is not None or lately < _IDLE_SHARE:
            self._needed = 0
            self._given_up = max(0.0, self._given_up - 1 / _SMOOTHED_LOOKS)
        elif self._needed == 0:
            self._needed, number = 1, present  # once may be a peak
        else:
            # Where others need it again and again, looks become rare: each move costs all threads.
            self._needed, self._given_up = 0, min(self._given_up + 1, _MAX_GIVE_UPS)
            self._rest = 2 ** max(0, int(self._given_up) - _PATIENT_GIVE_UPS)
        self._keep_to(number)

    def _keep_to(self, number: int | None) -> None:
        """Confine all threads at each call; free them, and again at the next call. ``_AffinityForbiddenError``."""
        if number is not None:
            Keeper.allowed = self.allowed or frozenset(os.sched_getaffinity(0))
            try:
                os.sched_setaffinity(0, {number})
            except PermissionError as exc:
                raise _AffinityForbiddenError(str(exc)) from exc
            except OSError as exc:  # what the process may use was changed from outside
                _log.debug("cannot use the processor", number=number, error=str(exc))
            else:
                _allow_all({number})
                self.present = number
                return
        if self.allowed is not None:
            is_complete = _allow_all(self.allowed)
            if self.present is None and is_complete:
                Keeper.allowed = None
            self.present = None


def _allow_all(processors: Collection[int]) -> bool:
    """Let all threads of this process run on these processors; return whether all are known."""
    handled, is_complete = set[int](), True
    for _ in range(_MAX_PASSES):
        try:
            new_threads = {int(thread.name) for thread in Path(_THREADS).iterdir()} - handled
        except OSError:  # no file descriptor is left
            new_threads = {
                thread.native_id for thread in threading.enumerate() if thread.native_id is not None
            } - handled
            is_complete = False
        for thread in new_threads:
            with contextlib.suppress(OSError):  # it has ended
                os.sched_setaffinity(thread, processors)
        if not new_threads:
            break
        handled |= new_threads
    return is_complete


def _siblings_of(processors: Collection[int]) -> dict[int, frozenset[int]]:
    """Return the processors on the core of each, as far as that is known."""
    siblings = {}
    for number in processors:
        with contextlib.suppress(OSError, ValueError):
            ranges = Path(_SIBLINGS.format(number)).read_text(encoding="ascii").strip().split(",")
            bounds = [[int(end) for end in text.split("-")] for text in ranges]
            siblings[number] = frozenset(sibling for ends in bounds for sibling in range(ends[0], ends[-1] + 1))
    return siblings


def _vary(seconds: float) -> float:
    """Two processes that are started together must not look at the same time, and both move."""
    return seconds * random.uniform(0.7, 1.3)  # noqa: S311  # jitter, no secret


def unconfine() -> None:
    """Let the program that this thread is about to start use all processors.

    The thread keeps that until the next look, which confines all threads again if the process still keeps to one.
    """
    if (allowed := Keeper.allowed) is not None:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, allowed)
