"""The event journal of a node as the Bare Metal API has it: a list of events, and each event.

``timeline`` is the fuller view of the same. Source: the Bare Metal API reference (node history).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api import paging, scalars
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.documented import Limit, SortDir, Uuid, one_of
from ferroscope.api.errors import MissingError
from ferroscope.api.idents import node_ident
from ferroscope.api.links import Link, own
from ferroscope.api.times import iso
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.model import Entry
from ferroscope.core.reasons import HINTS, Reason

_SHORT: Final = 255
_SORT_FIELDS: Final = {"created_at": "at", "id": "id", "severity": "severity", "uuid": "uuid"}


class HistoryQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/history."""

    detail: bool | None = None
    limit: Limit | None = None
    marker: Uuid | None = None
    sort_dir: SortDir = "asc"
    sort_key: Annotated[str, one_of(*_SORT_FIELDS)] = "created_at"


class HistoryEvent(msgspec.Struct, frozen=True):
    """An event; the last three fields are shown in detail only."""

    uuid: str
    created_at: str | None
    severity: str
    event: str
    links: list[Link]
    event_type: str | UnsetType = UNSET
    conductor: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET


class History(msgspec.Struct, frozen=True):
    """A page of events; ``next`` is the address of the page after it."""

    history: list[HistoryEvent]
    next: str | UnsetType = UNSET


def list_history(context: ApiContext, call: Call[HistoryQuery, None]) -> Reply:
    """List what happened to a node, oldest first."""
    ident, asked = node_ident(call), call.query
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    sort = paging.sort_field(asked.sort_key, _SORT_FIELDS)
    descending = paging.descending(asked.sort_dir)
    marker = paging.marker(asked.marker)

    def work(tx: Transaction) -> tuple[str, list[Entry], bool]:
        node = tx.nodes.get(ident).uuid
        query = Query(filters={"node": node}, marker=marker, sort_key=sort, descending=descending)
        entries, more = paging.read(tx.journal.list, query, size)
        return node, entries, more

    node, entries, more = context.store.read(work)
    events = [_event(entry, call.url, detail=bool(asked.detail)) for entry in entries]
    following = paging.next_link(call.url, f"nodes/{node}/history", asked, size, entries[-1].uuid) if more else UNSET
    return Reply(200, History(history=events, next=following))


def get_history_event(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Show one event in full."""
    ident, event = node_ident(call), scalars.uuid("event", call.path["event"])

    def work(tx: Transaction) -> list[Entry]:
        return list(tx.journal.list(Query(filters={"node": tx.nodes.get(ident).uuid, "uuid": event}, sort_key="id")))

    entries = context.store.read(work)
    if not entries:
        raise MissingError(f"Node {ident} has no event {event} in its history.")
    return Reply(200, _event(entries[0], call.url, detail=True))


def hint_of(reason: str | None) -> str | None:
    """Return the advice for a reason code; None for none, or for one of a newer version."""
    return HINTS[Reason(reason)] if reason in HINTS else None


def _event(entry: Entry, url: str, *, detail: bool) -> HistoryEvent:
    text = " ".join(filter(None, (entry.message, hint_of(entry.reason))))
    return HistoryEvent(
        uuid=entry.uuid,
        created_at=iso(entry.at),
        severity=str(entry.severity),
        event=text if detail or len(text) <= _SHORT else text[: _SHORT - 3] + "...",
        links=own(url, f"nodes/{entry.node}/history/{entry.uuid}"),
        event_type=entry.step if detail else UNSET,
        conductor=entry.process if detail else UNSET,
        user=None if detail else UNSET,
    )
