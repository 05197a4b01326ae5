"""The fence of commands to servers that have none: what changes something is sent only while it is sure to be wanted.

A BMC obeys whoever sends, and a process can be stopped at any instruction, for any time. So the transports look
immediately before they write bytes that change something, and not only when they are asked to: a process that slept
through the end of its right wakes up to ``TooLateError``. What the kernel has taken and cannot deliver is given up when
the right would end, so that a network that heals brings nothing old to the server.
"""

from __future__ import annotations

import contextlib
import math
import socket
import threading
from collections.abc import Callable, Iterator

Left = Callable[[], float]


class TooLateError(Exception):
    """It is not sure any more that the command is wanted; nothing of it has been sent since then."""


class _Current(threading.local):
    left: Left | None = None


_current = _Current()


@contextlib.contextmanager
def fenced(left: Left) -> Iterator[None]:
    """Let this thread send only while ``left`` returns more than 0 seconds; ``TooLateError``."""
    before, _current.left = _current.left, left
    try:
        check()
        yield
    finally:
        _current.left = before


def limit() -> Left | None:
    """Return what limits this thread's commands, for another one that sends for it; None outside of ``fenced``."""
    return _current.left


def check() -> float:
    """Return for how many seconds sending is all right, infinity outside of ``fenced``; ``TooLateError``."""
    left = math.inf if _current.left is None else _current.left()
    if left <= 0:
        raise TooLateError
    return left


def guard(connection: socket.socket) -> None:
    """Call immediately before bytes are written to the TCP ``connection``; ``TooLateError``."""
    left = check()
    if math.isfinite(left):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(left * 1000)))
        check()
