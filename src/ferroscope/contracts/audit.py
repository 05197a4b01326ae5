"""The audit event of the API call that this thread is serving.

The store writes it in the transaction of the change, so that there is neither a change without an event nor an event
without its change. A call that changes nothing has no transaction; its event, if any, is appended afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from ferroscope.core.audit import AuditEvent


class Audited:
    """The event of a call; ``recorded`` once it is committed. ``by``: who is shown in the node's timeline, or ""."""

    def __init__(self, event: AuditEvent) -> None:
        self.event = event
        self.recorded = False

    @property
    def by(self) -> str:
        return "" if self.event.method == "none" else self.event.user


PENDING: Final[ContextVar[Audited | None]] = ContextVar("PENDING", default=None)


class AuditLog(Protocol):
    """Audit events; append-only."""

    def append(self, event: AuditEvent) -> None:
        """Append the event with the transaction's time."""

    def list(
        self,
        *,
        limit: int,
        before: int | None = None,
        since: float = 0.0,
        node: str | None = None,
        user: str | None = None,
    ) -> Sequence[AuditEvent]:
        """Return the newest events with these properties, newest first; ``before``: an ID."""

    def remove_old(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` events from before this time; return their number."""
