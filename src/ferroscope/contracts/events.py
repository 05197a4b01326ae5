"""Events: the outbox of notifications, and the senders that deliver them.

A notification is written in the transaction of its change, so there is neither one without the other. It stays
``pending`` until its target has confirmed it, so it is delivered at least once; consumers ignore an ID that they have
seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from ferroscope.core.notification import OutboxEvent


class SendError(Exception):
    """The target has not confirmed the event. The message must not contain secrets.

    ``refused``: it never will, because the event itself is invalid there. ``unreachable``: there was no complete
    response, so this says nothing about the event. ``retry_after``: seconds for which it asked to be left alone.
    """

    def __init__(
        self, message: str, *, refused: bool = False, unreachable: bool = False, retry_after: float = 0.0
    ) -> None:
        self.refused = refused
        self.unreachable = unreachable
        self.retry_after = retry_after
        super().__init__(message)


class Sender(Protocol):
    """Delivers events to one target, such as a webhook; thread-safe.

    ``connections``: how many threads may call ``send`` at the same time, never with two events of one node.
    """

    connections: int

    def send(self, event: OutboxEvent) -> None:
        """Deliver one event and return when the target has confirmed it, all within a bounded time; ``SendError``."""

    def close(self) -> None:
        """Close the connections."""


Senders = Mapping[str, Sender]
