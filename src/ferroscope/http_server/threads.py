"""The threads that run the application, started when there is a call for them.

``concurrent.futures`` gives each call a future, with its lock and condition, which nobody here waits for: with it, a
call costs the server half as much again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final

import structlog

_log: Final = structlog.get_logger(__name__)

Job = Callable[[], None]


class CallThreads:
    """At most ``most`` threads, which live until ``close``. Submit from one thread only."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._started = 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        # One entry for each thread that has finished its work. Of more entries than idle threads, once all have been
        # started, nothing depends.
        self._idle: deque[None] = deque()

    def submit(self, job: Job) -> None:
        """Run ``job`` as soon as a thread is free."""
        self._jobs.put(job)
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
                self._jobs.get_nowait()
        except Empty:
            for _ in range(self._started):
                self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # noqa: BLE001  # the boundary: a job answers its own faults, and its thread must live
                _log.exception("a call failed")
            self._idle.append(None)
