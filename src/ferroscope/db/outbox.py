"""The outbox: a row for each event and target."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final, get_args

import msgspec
from sqlalchemy import bindparam, delete, func, select, update

from ferroscope.contracts.store import OldRows
from ferroscope.core.model import Inspection, Node
from ferroscope.core.notification import (
    MAX_CHANGES,
    ChangeView,
    EventData,
    EventTally,
    EventType,
    NodeView,
    OutboxEvent,
    OutboxState,
    inspection_view,
    shorten_change,
    view_of,
)
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, add
from ferroscope.db.session import Repository
from ferroscope_client.core.values import new_uuid

_EVENT: Final = Mapper(OutboxEvent, schema.outbox)
_NEW: Final = ("target", "event", "type", "node", "data", "at", "state", "attempts")
_o = schema.outbox.c
_MAX_ERROR: Final = 255
# More than may wait for a target, and than are given up at once: see ``periodic.notifications``.
MAX_COUNTED_EVENTS: Final = 110_000
_NEXT_TARGET = select(func.min(_o.target)).where(_o.target > bindparam("after"))
_OF_TARGET = (_o.target == bindparam("target"), _o.state == bindparam("state"))
_COUNT = select(func.count()).select_from(select(_o.id).where(*_OF_TARGET).limit(MAX_COUNTED_EVENTS).subquery("some"))
_OLDEST = select(_o.at).where(*_OF_TARGET).order_by(_o.id).limit(1)


class Outbox(Repository):
    """The events of all targets; part of ``db.transaction.Transaction``.

    ``id`` orders the events of one node, because each is added under the node's lock.

    The store's ``subscriptions`` say which targets get which events.
    """

    def wants(self, kind: EventType) -> bool:
        """Whether any target gets events of this type: otherwise nothing needs to be computed for them."""
        return any(subscription.wants(kind) for subscription in self._tx.subscriptions)

    def add(
        self,
        kind: EventType,
        node: Node,
        inspection: Inspection | None = None,
        changes: Sequence[ChangeView] | None = None,
    ) -> None:
        """Add the event for each target that wants it, with the transaction's time; the node must be locked."""
        if not self._tx.subscriptions:
            return
        view = view_of(node)
        targets = [
            subscription.target
            for subscription in self._tx.subscriptions
            if subscription.wants(kind) and subscription.selects(view)
        ]
        if not targets:
            return
        data = msgspec.json.encode(_data(view, inspection, changes)).decode()
        event, now = new_uuid(), self._tx.now
        rows = [(target, event, str(kind), node.uuid, data, now, "pending", 0) for target in targets]
        add(self._tx, schema.outbox, _NEW, rows)

    def due(self, target: str, limit: int, without: Collection[str]) -> Sequence[OutboxEvent]:
        """Return the oldest pending events of the target, by ``id``, except those of the nodes ``without``."""
        query = select(*_EVENT.columns).where(_o.target == target, _o.state == "pending")
        if without:
            query = query.where(_o.node.not_in(sorted(without)))
        return self._read(query.order_by(_o.id).limit(limit))

    def delivered(self, ids: Collection[int]) -> None:
        """Record that the target has confirmed these events."""
        if ids:
            change = {"state": "delivered", "settled_at": self._tx.now, "error": None}
            self._execute(update(schema.outbox).where(_o.id.in_(sorted(ids)), _o.state == "pending").values(change))

    def failed(self, ident: int, error: str, *, dead: bool) -> None:
        """Record a failed attempt; ``dead``: give the event up."""
        change: dict[str, Any] = {"attempts": _o.attempts + 1, "error": error[:_MAX_ERROR]}
        if dead:
            change |= {"state": "dead", "settled_at": self._tx.now}
        self._execute(update(schema.outbox).where(_o.id == ident, _o.state == "pending").values(change))

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
        query = select(*_EVENT.columns).order_by(_o.id.desc()).limit(limit)
        for column, value in ((_o.target, target), (_o.state, state), (_o.node, node)):
            if value is not None:
                query = query.where(column == value)
        if state is not None and target is None:  # the index begins with the target
            query = query.where(_o.target.in_(self._list_targets()))
        if ids:
            query = query.where(_o.event.in_(sorted(ids)))
        return self._read(query)

    def redeliver(self, events: Collection[int]) -> int:
        """Set these events to pending again, as if new; return how many were not. Pass ``OutboxEvent.id``."""
        if not events:
            return 0
        change = {"state": "pending", "settled_at": None, "error": None, "attempts": 0}
        wanted = (_o.id.in_(sorted(events)), _o.state != "pending")
        return int(self._execute(update(schema.outbox).where(*wanted).values(change)).rowcount)

    def tallies(self, states: Sequence[OutboxState] = get_args(OutboxState)) -> Sequence[EventTally]:
        """Return the number of events by target and state, without empty ones.

        No more than ``MAX_COUNTED_EVENTS`` are counted of each.
        """
        keys = [{"target": target, "state": state} for target in self._list_targets() for state in states]
        asked = [(key, self._tx.ask(_COUNT, key), self._tx.ask(_OLDEST, key)) for key in keys]
        return [
            msgspec.convert(key | {"events": number.answer().first()[0], "oldest": at}, EventTally)
            for key, number, oldest in asked
            for at in oldest.answer().scalars()
        ]

    def _list_targets(self) -> Sequence[str]:
        """Return the targets of all events; the next one is always the first of the rest of an index."""
        targets = [""]
        while (target := self._tx.run(_NEXT_TARGET, {"after": targets[-1]}).scalars()[0]) is not None:
            targets.append(target)
        return targets[1:]

    def give_up_oldest(self, target: str, number: int, error: str) -> int:
        """Give up to ``number`` of the target's oldest pending events up; return their number."""
        oldest = select(_o.id).where(_o.target == target, _o.state == "pending").order_by(_o.id).limit(number)
        ids = list(self._execute(oldest).scalars())
        if ids:
            change = {"state": "dead", "settled_at": self._tx.now, "error": error[:_MAX_ERROR]}
            self._execute(update(schema.outbox).where(_o.id.in_(ids)).values(change))
        return len(ids)

    def find_old(self, delivered: float, dead: float, after: int | None, limit: int) -> OldRows:
        """Return, of the next ``limit`` events, the IDs of the old ones.

        Those delivered before ``delivered``, those given up before ``dead``, and those pending since before ``dead``.
        """
        columns = (_o.id, _o.state, _o.at, _o.settled_at)
        rows = self._execute(select(*columns).where(_o.id > (after or 0)).order_by(_o.id).limit(limit)).all()
        until = {"delivered": delivered, "dead": dead, "pending": dead}
        old = [ident for ident, state, at, settled_at in rows if (settled_at or at) < until.get(state, 0.0)]
        return OldRows(old, rows[-1][0] if rows else after, is_last=len(rows) < limit)

    def remove(self, ids: Sequence[int]) -> int:
        """Delete these events; return their number."""
        return int(self._execute(delete(schema.outbox).where(_o.id.in_(ids))).rowcount)

    def _read(self, query: Any) -> Sequence[OutboxEvent]:
        return [_EVENT.from_row(row) for row in self._execute(query)]

    def _execute(self, statement: Any) -> Any:
        return self._tx.connection.execute(statement)


def _data(view: NodeView, inspection: Inspection | None, changes: Sequence[ChangeView] | None) -> EventData:
    return EventData(
        node=view,
        inspection=None if inspection is None else inspection_view(inspection),
        changes=None if changes is None else [shorten_change(change) for change in changes[:MAX_CHANGES]],
        changes_total=None if changes is None else len(changes),
    )
