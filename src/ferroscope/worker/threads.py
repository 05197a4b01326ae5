"""Threads that are started when there is something to do and none is idle, and that end when they stay idle.

The thread that became idle last goes on first, so that those which are not needed any more do end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.errors import StoreUnavailableError

_log = structlog.get_logger(__name__)

# Seconds for which a thread waits for something to do.
_IDLE: Final = 15.0


class _Seat:
    """A thread's place: what it is to do next, and what wakes it up."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.job: Callable[[], None] | None = job
        self.woken = threading.Event()


class Threads:
    """``failed`` is called when a job raised what it must not: the process is to be started again."""

    def __init__(self, name: str, failed: Callable[[], object]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Condition()
        self._idle: list[_Seat] = []
        self._started = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job`` in a thread at once."""
        with self._lock:
            if self._idle:
                seat = self._idle.pop()
                seat.job = job
                seat.woken.set()
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        seat = _Seat(job)
        threading.Thread(target=lambda: self._main(seat), name=name, daemon=True).start()

    def close(self) -> None:
        """Let idle threads end, and the others when they have done what they are at."""
        with self._lock:
            self._closed = True
            for seat in self._idle:
                seat.woken.set()
            self._idle.clear()

    def _main(self, seat: _Seat) -> None:
        while seat.job is not None:
            self._do(seat.job)
            seat.job = None
            seat.woken.clear()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(seat)
            if not seat.woken.wait(_IDLE):
                with self._lock:
                    if seat in self._idle:
                        self._idle.remove(seat)

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except StoreUnavailableError as exc:  # only where the process shall stop: whatever was written waits for others
            _log.warning("the database is unavailable", error=str(exc))
        except BaseException:
            self._failed()
            _log.exception("a worker's thread failed; stopping the process")
            raise
