"""Notifications: the events about nodes and inspections for other systems, and which target gets which event. Pure.

The data of each event type is a struct, from which docs/reference/events.md is generated. The format of a message, such
as CloudEvents, is a sender's matter: see ``contracts.remote``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

import msgspec

from ferroscope.core.model import Inspection, Node
from ferroscope_client.core.node import Document

# Bounds of one event: a machine may report thousands of parts with long names.
MAX_CHANGES: Final = 200
_MAX_TEXT: Final = 500


class EventType(StrEnum):
    """The types of events."""

    STARTED = "inspection.started"
    WAITING = "inspection.waiting"
    FINISHED = "inspection.finished"
    FAILED = "inspection.failed"
    ABORTED = "inspection.aborted"
    HARDWARE_CHANGED = "node.hardware_changed"
    DISCOVERED = "node.discovered"
    CREATED = "node.created"
    DELETED = "node.deleted"
    TEST = "test"


MEANINGS: Final[dict[EventType, str]] = {
    EventType.STARTED: "An inspection has started: by an operator, by a machine that called back, or of stored data.",
    EventType.WAITING: "The machine is booting; its callback is awaited.",
    EventType.FINISHED: "The inspection succeeded; its results are stored.",
    EventType.FAILED: "The inspection failed; `inspection.reason` is why: `restarted` if another one replaced it.",
    EventType.ABORTED: "An operator aborted the inspection.",
    EventType.HARDWARE_CHANGED: "The hardware differs from that of the previous inspection; comes before "
    "`inspection.finished`.",
    EventType.DISCOVERED: "An unknown machine called back and was enrolled as a node; comes instead of `node.created`.",
    EventType.CREATED: "A node was created.",
    EventType.DELETED: "A node was deleted, or a discovered one was rejected.",
    EventType.TEST: "A message of `ferroscope events test`; it concerns no node.",
}


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """The node when the event happened. ``inbox``: it waits for approval."""

    uuid: str
    name: str | None = None
    driver: str = ""
    resource_class: str | None = None
    owner: str | None = None
    lessee: str | None = None
    conductor_group: str = ""
    provision_state: str = ""
    inbox: bool = False


class InspectionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The inspection; times as in RFC 3339. ``reason`` and ``error`` are set if it failed or was aborted.

    ``reapply``: stored data is processed again, without the machine.
    """

    uuid: str
    state: str
    started_at: str
    finished_at: str | None = None
    reason: str | None = None
    error: str | None = None
    reapply: bool = False


class ChangeView(msgspec.Struct, frozen=True, kw_only=True):
    """One difference, as ``ferroscope inventory diff`` shows it; ``text`` is the complete message."""

    what: str
    kind: str
    where: str
    text: str
    field: str | None = None
    before: str | int | float | None = None
    after: str | int | float | None = None


class EventData(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data of an event. ``changes`` has at most 200 of the ``changes_total`` differences."""

    node: NodeView | None = None
    inspection: InspectionSummary | None = None
    changes: list[ChangeView] | None = None
    changes_total: int | None = None


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """Which events a target gets.

    ``events``: patterns such as ``inspection.*``; empty: all. ``nodes``: a field of ``NodeView`` -> pattern; all have
    to match.
    """

    target: str
    events: tuple[str, ...] = ()
    nodes: Mapping[str, str] = {}

    def wants(self, kind: str) -> bool:
        """Whether the target gets events of this type, at least about some nodes."""
        return not self.events or any(fnmatchcase(kind, pattern) for pattern in self.events)

    def selects(self, node: NodeView) -> bool:
        """Whether the target gets events of this node."""
        return all(fnmatchcase(str(getattr(node, name) or ""), pattern) for name, pattern in self.nodes.items())


OutboxState = Literal["pending", "delivered", "dead"]


class OutboxEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event in the outbox, for one target.

    ``event`` is its ID, the same for all targets and deliveries. ``id`` orders the events of one node. ``attempts``:
    failed ones; ``error`` is of the last one. ``settled_at``: when it was delivered or given up (``dead``).
    """

    target: str
    event: str
    type: str
    node: str
    data: Document
    at: float
    id: int = 0
    state: OutboxState = "pending"
    attempts: int = 0
    error: str | None = None
    settled_at: float | None = None


class EventTally(msgspec.Struct, frozen=True, kw_only=True):
    """How many events of one target are in one state; ``oldest`` is when the first of them happened."""

    target: str
    state: OutboxState
    events: int
    oldest: float


def view_of(node: Node) -> NodeView:
    """Return what events say about the node."""
    return NodeView(
        uuid=node.uuid,
        name=node.name,
        driver=node.driver,
        resource_class=node.resource_class,
        owner=node.owner,
        lessee=node.attributes.get("lessee"),
        conductor_group=node.conductor_group,
        provision_state=str(node.provision_state),
        inbox=node.inbox,
    )


def inspection_view(inspection: Inspection) -> InspectionSummary:
    """Return what events say about the inspection."""
    return InspectionSummary(
        uuid=inspection.uuid,
        state=str(inspection.state),
        started_at=iso(inspection.started_at),
        finished_at=None if inspection.finished_at is None else iso(inspection.finished_at),
        reason=inspection.reason,
        error=_short(inspection.error),
        reapply=inspection.reapplies is not None,
    )


def shorten_change(change: ChangeView) -> ChangeView:
    """Return the difference with all texts limited in length."""
    values = msgspec.structs.asdict(change)
    return ChangeView(**{name: _short(value) for name, value in values.items()})


def iso(seconds: float) -> str:
    """Return the time in RFC 3339, with a resolution of a microsecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _short(value: Any) -> Any:
    return f"{value[: _MAX_TEXT - 1]}…" if isinstance(value, str) and len(value) > _MAX_TEXT else value
