"""The pool of worker threads of one process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from ferroscope.worker.loop import Worker


class WorkerPool:
    """``threads`` workers, by default as many as there are processors to run them."""

    def __init__(self, build: Callable[[], Worker], threads: int) -> None:
        self.workers = [build() for _ in range(threads or len(os.sched_getaffinity(0)))]
        self._threads = [
            threading.Thread(target=worker.run, name=f"worker-{number}", daemon=True)
            for number, worker in enumerate(self.workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for all threads to end after the stop flag was set; whether they did in time."""
        for thread in self._threads:
            thread.join(timeout / len(self._threads))
        return not any(thread.is_alive() for thread in self._threads)
