"""How long this process waits for a processor: by that much, a sleeping thread wakes up late.

Other processes can cause it, and so can threads of this process that hold the interpreter. The measuring thread runs
only while a call is measured.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_PERIOD_SECONDS: Final = 0.25
# A failed call is the process's own fault if it waited for this long, and for this share of the call.
_MIN_SECONDS: Final = 1.0
_MIN_SHARE: Final = 0.5


class ProcessorDelay:
    """The delays of the process since a call began."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _meter.total

    def excuses(self) -> float:
        """Return the seconds for which the process waited, 0 if that is too short to cause a failure."""
        delay = _meter.total - self._before
        return delay if delay >= max(_MIN_SECONDS, _MIN_SHARE * (time.monotonic() - self._began)) else 0.0


class _DelayMeter:
    def __init__(self) -> None:
        self.total = 0.0
        self._lock = threading.Lock()
        self._calls = 0
        self._is_running = False

    def begin(self) -> None:
        with self._lock:
            self._calls += 1
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="processor-delay", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._calls -= 1

    def _run(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(_PERIOD_SECONDS)
            self.total += max(0.0, time.monotonic() - before - _PERIOD_SECONDS)
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return


_meter = _DelayMeter()


@contextmanager
def measure_delay() -> Iterator[ProcessorDelay]:
    """Measure the delays of the process during the block."""
    meter = _meter
    meter.begin()
    try:
        yield ProcessorDelay()
    finally:
        meter.end()


def _forget_thread() -> None:
    global _meter  # a forked child has no thread
    _meter = _DelayMeter()


os.register_at_fork(after_in_child=_forget_thread)
