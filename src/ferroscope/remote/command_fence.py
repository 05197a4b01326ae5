"""A fence for commands to servers without fencing: it sends them only while the sender certainly has the right to.

A BMC obeys any sender, and a process can be stopped at any instruction, for any time. So the transports check
immediately before they write bytes that change something, not only when the call begins. A process that was stopped
until its right expired gets ``TooLateError``. The kernel drops data in its send buffer when the right expires
(TCP_USER_TIMEOUT), so a network that recovers delivers no old command.
"""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable, Iterator
from contextvars import ContextVar

TimeLeft = Callable[[], float]


class TooLateError(Exception):
    """The right to send has expired; nothing was sent after that."""


_limit: ContextVar[TimeLeft | None] = ContextVar("limit", default=None)


@contextlib.contextmanager
def fence_commands(time_left: TimeLeft) -> Iterator[None]:
    """Let this thread send only while ``time_left`` returns more than 0 seconds; ``TooLateError``."""
    token = _limit.set(time_left)
    try:
        check()
        yield
    finally:
        _limit.reset(token)


def limit() -> TimeLeft | None:
    """Return this thread's limit, for a thread that sends on its behalf; None outside of ``fence_commands``."""
    return _limit.get()


def check() -> float:
    """Return for how many seconds sending is allowed, infinity outside of ``fence_commands``; ``TooLateError``."""
    time_left = _limit.get()
    seconds = math.inf if time_left is None else time_left()
    if seconds <= 0:
        raise TooLateError
    return seconds


def guard(connection: socket.socket) -> None:
    """Call immediately before writing to the TCP ``connection``; ``TooLateError``."""
    seconds = check()
    if math.isfinite(seconds):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(seconds * 1000)))
        check()
