"""Events: the outbox of notifications and the senders that deliver them, and the audit event of an API call.

A notification is written in the transaction of its change, so there is neither one without the other. It stays
``pending`` until its target has confirmed it, so it is delivered at least once; consumers ignore an ID that they have
seen. The same holds for the audit event of the call that this thread is serving, except that a call that changes
nothing has no transaction; its event, if any, is appended afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import Final, Protocol

from ferroscope.core.audit import AuditEvent
from ferroscope.core.model import Inspection, Node
from ferroscope.core.notification import ChangeView, Kind, OutboxEvent, OutboxState, Tally


class Outbox(Protocol):
    """The events of all targets; part of ``contracts.store.Transaction``.

    ``id`` orders the events of one node, because each is added under the node's lock.
    """

    def wants(self, kind: Kind) -> bool:
        """Whether any target gets events of this type: otherwise nothing needs to be computed for them."""

    def add(
        self,
        kind: Kind,
        node: Node,
        inspection: Inspection | None = None,
        changes: Sequence[ChangeView] | None = None,
    ) -> None:
        """Add the event for each target that wants it, with the transaction's time; the node must be locked."""

    def due(self, target: str, limit: int, without: Collection[str]) -> Sequence[OutboxEvent]:
        """Return the oldest pending events of the target, by ``id``, except those of the nodes ``without``."""

    def delivered(self, ids: Collection[int]) -> None:
        """Record that the target has confirmed these events."""

    def failed(self, ident: int, error: str, *, dead: bool) -> None:
        """Record a failed attempt; ``dead``: give the event up."""

    def list(
        self,
        *,
        limit: int,
        target: str | None = None,
        state: OutboxState | None = None,
        node: str | None = None,
        ids: Collection[str] = (),
    ) -> Sequence[OutboxEvent]:
        """Return the newest events with these properties, newest first; ``ids``: of events."""

    def redeliver(self, events: Collection[int]) -> int:
        """Set these events to pending again, as if new; return how many were not. Pass ``OutboxEvent.id``."""

    def tallies(self) -> Sequence[Tally]:
        """Return the number of events by target and state, without empty ones."""

    def give_up_oldest(self, target: str, number: int, error: str) -> int:
        """Give up to ``number`` of the target's oldest pending events up; return their number."""

    def remove_old(self, delivered: float, dead: float, limit: int) -> int:
        """Delete up to ``limit`` old events; return their number.

        Those delivered before ``delivered``, those given up before ``dead``, and those pending since before ``dead``.
        """


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
