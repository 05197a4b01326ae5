"""A pool of daemon threads that are started on demand and end when they stay idle.

Not concurrent.futures: the interpreter joins its threads at exit, so a hook that hangs would keep the process alive,
and its idle threads never end. Here the thread that became idle last runs next, so those that are not needed end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.errors import StoreUnavailableError

_log = structlog.get_logger(__name__)

# Seconds after which an idle thread ends.
_IDLE: Final = 15.0


class _Slot:
    """The next job of a thread, and the event that wakes it up."""

    def __init__(self, job: Callable[[], None]) -> None:
        self.job: Callable[[], None] | None = job
        self.woken = threading.Event()


class Threads:
    """``failed`` is called if a job raises an unexpected exception: the process has to be restarted."""

    def __init__(self, name: str, failed: Callable[[], object]) -> None:
        self._name = name
        self._failed = failed
        self._lock = threading.Condition()
        self._idle: list[_Slot] = []
        self._started = 0
        self._closed = False

    def submit(self, job: Callable[[], None]) -> None:
        """Run ``job`` in a thread immediately."""
        with self._lock:
            if self._idle:
                slot = self._idle.pop()
                slot.job = job
                slot.woken.set()
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        slot = _Slot(job)
        threading.Thread(target=lambda: self._main(slot), name=name, daemon=True).start()

    def close(self) -> None:
        """Let idle threads end now, and the others after their job."""
        with self._lock:
            self._closed = True
            for slot in self._idle:
                slot.woken.set()
            self._idle.clear()

    def _main(self, slot: _Slot) -> None:
        while slot.job is not None:
            self._do(slot.job)
            slot.job = None
            slot.woken.clear()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(slot)
            if not slot.woken.wait(_IDLE):
                with self._lock:
                    if slot in self._idle:
                        self._idle.remove(slot)

    def _do(self, job: Callable[[], None]) -> None:
        try:
            job()
        except StoreUnavailableError as exc:  # only while the process is stopping; it is delivered again
            _log.warning("the database is unavailable", error=str(exc))
        except BaseException:
            self._failed()
            _log.exception("a worker's thread failed; stopping the process")
            raise
