"""The threads that run the application, started when there is a call for them.

``concurrent.futures`` gives each call a future with a lock and a condition, which no caller here waits for. With it, a
call costs the server half as much again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

import structlog

_log: Final = structlog.get_logger(__name__)

Job = Callable[[], None]


class CallThreads:
    """At most ``most`` threads, which live until ``close``. Submit from one thread only.

    Sources take turns, so that a source with many jobs delays each of the others by one of them. Half of the threads
    take no long job: the interpreter runs one thread at a time, so each long job slows all others down.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, deque[tuple[Job, bool]]] = OrderedDict()  # and whether it is a long one
        self._long = 0  # jobs that run
        self._put_off = 0  # jobs that a thread could have taken, if not so many long ones had run
        # One True for each job; False ends a thread.
        self._waiting: SimpleQueue[bool] = SimpleQueue()
        # One entry for each thread that has finished its work. Surplus entries, once all threads have started, do no
        # harm.
        self._idle: deque[None] = deque()

    def submit(self, job: Job, source: str, *, is_long: bool = False) -> None:
        """Run ``job`` when a thread is free and it is this source's turn."""
        with self._lock:
            self._jobs.setdefault(source, deque()).append((job, is_long))
        self._waiting.put(True)
        try:
            self._idle.pop()
        except IndexError:
            if self._started < self._most:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}_{self._started}", daemon=True).start()

    def close(self) -> None:
        """Drop the waiting jobs; the threads end with their present job."""
        with self._lock:
            self._put_off = 0
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            for _ in range(self._started):
                self._waiting.put(False)

    def _run(self) -> None:
        while self._waiting.get():
            job, is_long = self._take()
            try:
                job()
            except Exception:  # noqa: BLE001  # the boundary: a job answers its own faults, and its thread must live
                _log.exception("a call failed")
            if is_long:
                self._end_long()
            self._idle.append(None)

    def _take(self) -> tuple[Job, bool]:
        """Return the first job of the source whose turn it is; an empty job if only long ones are left."""
        with self._lock:
            is_full = self._long >= max(1, self._most // 2)
            source = next((source for source, jobs in self._jobs.items() if not (is_full and jobs[0][1])), None)
            if source is None:
                self._put_off += 1
                return _do_nothing, False
            jobs = self._jobs[source]
            job, is_long = jobs.popleft()
            self._long += is_long
            if jobs:
                self._jobs.move_to_end(source)
            else:
                del self._jobs[source]
            return job, is_long

    def _end_long(self) -> None:
        with self._lock:
            self._long -= 1
            if self._put_off:
                self._put_off -= 1
                self._waiting.put(True)


def _do_nothing() -> None:
    """Leave the jobs to the threads that run long ones."""
