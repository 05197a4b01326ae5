"""The threads that run the application, started when there is a call for them.

``concurrent.futures`` gives each call a future, with its lock and condition, which nobody here waits for: with it, a
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

    Sources take turns, so that a source with many jobs delays each of the others by one of them.
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._lock = threading.Lock()
        self._jobs: OrderedDict[str, deque[Job]] = OrderedDict()
        # One True for each job; False ends a thread.
        self._waiting: SimpleQueue[bool] = SimpleQueue()
        # One entry for each thread that has finished its work. Of more entries than idle threads, once all have been
        # started, nothing depends.
        self._idle: deque[None] = deque()

    def submit(self, job: Job, source: str) -> None:
        """Run ``job`` as soon as a thread is free and it is the turn of this source."""
        with self._lock:
            self._jobs.setdefault(source, deque()).append(job)
        self._waiting.put(True)
        try:
            self._idle.pop()
        except IndexError:
            if self._started < self._most:
                self._started += 1
                threading.Thread(target=self._run, name=f"{self._name}_{self._started}", daemon=True).start()

    def close(self) -> None:
        """Forget what has not begun; the threads end with their present job."""
        try:
            while True:
                self._waiting.get_nowait()
        except Empty:
            for _ in range(self._started):
                self._waiting.put(False)

    def _run(self) -> None:
        while self._waiting.get():
            try:
                self._take()()
            except Exception:  # noqa: BLE001  # the boundary: a job answers its own faults, and its thread must live
                _log.exception("a call failed")
            self._idle.append(None)

    def _take(self) -> Job:
        """Return the first job of the source whose turn it is."""
        with self._lock:
            source, jobs = next(iter(self._jobs.items()))
            job = jobs.popleft()
            if jobs:
                self._jobs.move_to_end(source)
            else:
                del self._jobs[source]
            return job
