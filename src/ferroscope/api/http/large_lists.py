"""Bounds the memory of all lists together: few large ones are made at once.

The size of a list is unknown before it is read, so each list begins without a turn. When it turns out to be large, it
stops, waits for its turn without a connection of the database, and begins again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from ferroscope.api.errors import UnavailableError
from ferroscope.db import Store, Transaction

R = TypeVar("R")

# Large lists that a process makes at the same time.
AT_ONCE: Final = 2
# A list with more bytes waits for its turn.
LARGE_BYTES: Final = 2**20


class LargeError(Exception):
    """The list is large, and it is not its turn."""


class Room:
    """How much a list may read: ``limit`` bytes for a page; many only if it ``has_turn``. For one call."""

    def __init__(self, limit: int, *, has_turn: bool) -> None:
        self.limit = limit
        self.read = 0
        self._has_turn = has_turn

    def without_limit(self) -> Room:
        """Return the room for a list of small items that must not end before its last one."""
        return Room(2**63, has_turn=self._has_turn)

    def take(self, size: int) -> None:
        """Note that so many bytes are about to be read; ``LargeError``."""
        self.read += size
        if self.read > LARGE_BYTES and not self._has_turn:
            raise LargeError


class Turns:
    """Lets few large lists be made at once, by all threads of a process. A list waits without a database connection."""

    def __init__(self, at_once: int = AT_ONCE, seconds: float = 5.0) -> None:
        self._slots = threading.BoundedSemaphore(at_once)
        self._seconds = seconds

    def read(self, store: Store, limit: int, work: Callable[[Transaction, Room], R]) -> R:
        """Run ``work``, which may be run twice, on a snapshot; ``UnavailableError`` if other lists take too long."""
        try:
            return store.read(lambda tx: work(tx, Room(limit, has_turn=False)))
        except LargeError:
            pass
        if not self._slots.acquire(timeout=self._seconds):
            raise UnavailableError(
                "Too many large lists are being made at the same time. Try again, or ask for fewer items (limit).",
                {"Retry-After": "5"},
            )
        try:
            return store.read(lambda tx: work(tx, Room(limit, has_turn=True)))
        finally:
            self._slots.release()
