"""Threads that carry objects: a slow store keeps them waiting, and nobody else.

They are daemons: a process that ends does not wait for them. What was on its way then is in the
table of objects as ``uploading`` and is given up later.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Couriers(Generic[T]):
    """A few threads; jobs must not raise but say in their result what went wrong.

    What one raises all the same, ``collect`` raises: no courier is ever missing without a word.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._jobs: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Callable[[], T]] = queue.SimpleQueue()
        self._started = False
        self.out = 0

    def send(self, job: Callable[[], T]) -> None:
        """Have the job done; its result is to be collected."""
        if not self._started:
            self._started = True
            for number in range(self._number):
                threading.Thread(target=self._work, name=f"courier-{number}", daemon=True).start()
        self.out += 1
        self._jobs.put(job)

    def collect(self, timeout: float) -> list[T]:
        """Return what has come back, having waited for the first for ``timeout`` seconds."""
        found: list[T] = []
        while self.out:
            try:
                result = self._results.get(timeout=0.0 if found else timeout)
            except queue.Empty:
                break
            self.out -= 1
            found.append(result())
        return found

    def _work(self) -> None:
        while True:
            self._results.put(_done(self._jobs.get()))


def _done(job: Callable[[], T]) -> Callable[[], T]:
    try:
        result = job()
    except Exception as exc:  # noqa: BLE001  # the boundary: it is raised where results are collected
        fault = exc

        def fail() -> T:
            raise fault

        return fail
    return lambda: result
