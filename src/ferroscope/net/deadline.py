"""A hard deadline for everything that one call to a server does, whatever the server does.

Time-outs of sockets only limit the silence between two bytes: one that sends a byte a second
would hold a worker for ever. So when the time is over, a watchdog shuts the call's connections
down, which ends whatever waits for them: TLS handshakes, headers, bodies.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from types import TracebackType
from typing import Final


class DeadlineError(Exception):
    """The call's time is over."""


class Deadline:
    """``with Deadline(10.0) as deadline:``; what is opened in there and watched ends with it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def remaining(self) -> float:
        """Return the seconds that are left, 0 after the end."""
        return max(0.0, self._end - time.monotonic())

    def left(self) -> float:
        """Return the seconds that are left; ``DeadlineError`` where none are."""
        left = self.remaining()
        if not left:
            raise DeadlineError
        return left

    @property
    def expired(self) -> bool:
        return not self.remaining()

    def watch(self, connection: socket.socket) -> None:
        """Shut ``connection`` down when the time is over, whoever has wrapped it meanwhile."""
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._watched.append(handle)
        if self.expired:
            self._expire()

    def _expire(self) -> None:
        with self._lock:
            for handle in self._watched:
                with contextlib.suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        _current.deadline = self
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        _current.deadline = None
        with self._lock:
            for handle in self._watched:
                handle.close()
            self._watched.clear()


class _Current(threading.local):
    deadline: Deadline | None = None


_current: Final = _Current()


def current() -> Deadline:
    """Return this thread's deadline; ``DeadlineError`` outside of any: nobody waits for the answer."""
    if _current.deadline is None:
        raise DeadlineError
    return _current.deadline
