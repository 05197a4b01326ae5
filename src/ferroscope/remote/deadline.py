"""A hard deadline for everything that one call does, regardless of the server.

Socket time-outs limit only the silence between two bytes: a server that sends one byte a second would block a worker
forever. So when the time is over, the call's connections are shut down, which ends every wait on them: TLS handshakes,
headers, bodies. One thread does that for all calls: a timer thread for each cost more than a short call itself.

A slow server gets more time with each complete new answer, up to a bound.
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
    """``with Deadline(10.0) as deadline:``; ends the connections that are watched inside.

    ``longest``: the bound if there is ``progress``, after which there are ``seconds`` again. ``advanced`` counts it.
    """

    def __init__(self, seconds: float, longest: float = 0.0) -> None:
        self.seconds = seconds
        self.advanced = 0
        self.began = time.monotonic()
        self.end = self.began + seconds
        self._last_end = self.began + longest
        self._answered: set[str] = set()
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []

    def progress(self, read: str = "") -> None:
        """Extend the time after a complete answer: to a resource that is ``read`` for the first time, or to a command.

        A command may change a resource that was read before.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self.end or read in self._answered:
                return
            if read:
                self._answered.add(read)
            else:
                self._answered.clear()
            self.advanced += 1
            self.end = max(self.end, min(self._last_end, now + self.seconds))

    def remaining(self) -> float:
        """Return the seconds left, 0 after the end."""
        return max(0.0, self.end - time.monotonic())

    def seconds_left(self) -> float:
        """Return the seconds left; ``DeadlineError`` if there are none."""
        left = self.remaining()
        if not left:
            raise DeadlineError
        return left

    @property
    def has_expired(self) -> bool:
        return not self.remaining()

    def watch(self, connection: socket.socket) -> None:
        """Shut ``connection`` down when the time is over, even if TLS has wrapped it since."""
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._watched.append(handle)
        if time.monotonic() >= self.end:
            self.expire()

    def expire(self) -> None:
        """Shut all watched connections down; the time is over for good."""
        with self._lock:
            self.end = min(self.end, time.monotonic())
            for handle in self._watched:
                with contextlib.suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        _current.deadline = self
        _watchdog.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _watchdog.remove(self)
        _current.deadline = None
        with self._lock:
            for handle in self._watched:
                handle.close()
            self._watched.clear()


class _Watchdog:
    """The thread that ends calls whose time is over. It runs while there are any, and starts with the next one.

    It wakes for the earliest end that it knew when it fell asleep. Most calls are over by then and cost nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._running: set[Deadline] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.add(deadline)
            if self._thread is None:
                self._wakes_at = deadline.end
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            elif deadline.end < self._wakes_at:
                self._wakes_at = deadline.end
                self._changed.notify()

    def remove(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.discard(deadline)

    def _run(self) -> None:
        while expired := self._wait():
            for deadline in expired:
                deadline.expire()

    def _wait(self) -> list[Deadline]:
        """Return the calls whose time is over; none if there are no calls any more."""
        with self._changed:
            while self._running:
                self._wakes_at = min(deadline.end for deadline in self._running)
                wait = self._wakes_at - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                expired = [deadline for deadline in self._running if deadline.has_expired]
                self._running.difference_update(
                    expired
                )  # once is enough: a connection that is watched later is shut down at once
                return expired
            self._thread = None
            return []


class _Current(threading.local):
    deadline: Deadline | None = None


_current: Final = _Current()
_watchdog = _Watchdog()


def _forget_threads() -> None:
    """In a forked child the thread does not exist, and its lock may be held for good."""
    global _watchdog  # a new one for a new process
    _watchdog = _Watchdog()


os.register_at_fork(after_in_child=_forget_threads)


def current() -> Deadline:
    """Return this thread's deadline; ``DeadlineError`` if there is none."""
    if _current.deadline is None:
        raise DeadlineError
    return _current.deadline
