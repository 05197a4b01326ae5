"""The history of a node: its journal as the Bare Metal API's node history, inspections, and the timeline.

Source: the Bare Metal API reference (node history). Inspections and timeline are Ferroscope's additions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.auth import access
from ferroscope.api.errors import MissingError
from ferroscope.api.http import decoding, paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident
from ferroscope.api.http.large_lists import Room
from ferroscope.api.http.paging import Page
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import ApiLink, Limit, SortDir, Uuid, iso, iso_exact, one_of, own
from ferroscope.contracts.store import Query
from ferroscope.core.bmc_texts import OF_ANSWERS, without_answer
from ferroscope.core.model import Entry, Inspection, Node
from ferroscope.db import Transaction
from ferroscope_client.core.explanations import HINTS
from ferroscope_client.core.reasons import Reason

_MAX_SHORT_CHARACTERS: Final = 255
_PROJECT_SINCE: Final = 113
_STATES_SINCE: Final = 115
_SORT_FIELDS: Final = {"created_at": "at", "id": "id", "severity": "severity", "uuid": "uuid"}


class HistoryQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/nodes/{node}/history."""

    detail: bool | None = None
    limit: Limit | None = None
    marker: Uuid | None = None
    sort_dir: SortDir = "asc"
    sort_key: Annotated[str, one_of(*_SORT_FIELDS)] = "created_at"


class HistoryEvent(msgspec.Struct, frozen=True):
    """An event. The fields after ``links`` are present with ``detail`` only; None: not recorded."""

    uuid: str
    created_at: str | None
    severity: str
    event: str
    links: list[ApiLink]
    event_type: str | UnsetType = UNSET
    conductor: str | UnsetType | None = UNSET
    user: str | UnsetType | None = UNSET
    project: str | UnsetType | None = UNSET
    state: str | UnsetType | None = UNSET
    target_provision_state: str | UnsetType | None = UNSET
    duration_seconds: float | UnsetType | None = UNSET


class History(msgspec.Struct, frozen=True):
    """A page of events; ``next`` is the URL of the next page."""

    history: list[HistoryEvent]
    next: str | UnsetType = UNSET


def list_history(context: ApiContext, call: RouteCall[HistoryQuery, None]) -> Reply:
    """List the events of a node, oldest first."""
    ident, asked = node_ident(call), call.query
    size = paging.page_size(asked.limit, context.settings.api.max_limit)
    sort = paging.sort_field(asked.sort_key, _SORT_FIELDS)
    descending = paging.descending(asked.sort_dir)
    marker = paging.marker(asked.marker)

    def work(tx: Transaction, room: Room) -> tuple[str, Page]:
        node = tx.nodes.get(ident)
        query = Query(filters={"node": node.uuid}, marker=marker, sort_key=sort, descending=descending)
        reduced = _hide_answers(context, call, node)

        def show(entry: Entry) -> HistoryEvent:
            return _event(reduced(entry), call.url, call.minor, detail=bool(asked.detail))

        return node.uuid, paging.page(room, tx.journal, query, size, show)

    node, page = context.data.read_list(work)
    return _reply({"history": page.items}, call, f"nodes/{node}/history", size, page.last)


def _reply(body: dict[str, Any], call: RouteCall[Any, None], path: str, size: int, last: str | None) -> Reply:
    if last is not None:
        body["next"] = paging.next_link(call.url, path, call.query, size, last)
    return Reply(200, body)


def get_history_event(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show one event in full."""
    ident, event = node_ident(call), decoding.uuid("event", call.path["event"])

    def work(tx: Transaction) -> list[Entry]:
        node = tx.nodes.get(ident)
        entries = tx.journal.list(Query(filters={"node": node.uuid, "uuid": event}, sort_key="id"))
        return [_hide_answers(context, call, node)(entry) for entry in entries]

    entries = context.data.store.read(work)
    if not entries:
        raise MissingError(f"Event {event} of node {ident} could not be found.")
    return Reply(200, _event(entries[0], call.url, call.minor, detail=True))


def hint_of(reason: str | None) -> str | None:
    """Return the hint for a reason code; None if there is no code, or it is of a newer release."""
    return HINTS[Reason(reason)] if reason in HINTS else None


def _hide_answers(context: ApiContext, call: RouteCall[Any, Any], node: Node) -> Callable[[Any], Any]:
    """Return a function that removes the answers of BMCs if this caller may not see them."""
    if access.may(context.access.policy, access.ANSWERS, call.identity, access.target_of(node)):
        return lambda record: record
    return _without_answer


def _without_answer(record: Entry | Inspection) -> Entry | Inspection:
    if record.reason not in OF_ANSWERS:
        return record
    if isinstance(record, Inspection):
        return msgspec.structs.replace(record, error=without_answer(record.error or "", record.reason))
    numbers = {name: value for name, value in record.detail.items() if not isinstance(value, str)}
    return msgspec.structs.replace(record, message=without_answer(record.message, record.reason), detail=numbers)


def _event(entry: Entry, url: str, minor: int, *, detail: bool) -> HistoryEvent:
    states = None if detail and minor >= _STATES_SINCE else UNSET
    text = " ".join(filter(None, (entry.message, hint_of(entry.reason))))
    return HistoryEvent(
        uuid=entry.uuid,
        created_at=iso(entry.at),
        severity=str(entry.severity),
        event=text if detail or len(text) <= _MAX_SHORT_CHARACTERS else text[: _MAX_SHORT_CHARACTERS - 3] + "...",
        links=own(url, f"nodes/{entry.node}/history/{entry.uuid}"),
        event_type=entry.step if detail else UNSET,
        conductor=entry.process if detail else UNSET,
        user=None if detail else UNSET,
        project=None if detail and minor >= _PROJECT_SINCE else UNSET,
        state=states,
        target_provision_state=states,
        duration_seconds=states,
    )


# The timeline: every step of every inspection of a node, with reasons and hints. It answers "why is it stuck?".

_CHUNK_STEPS: Final = 1000
# Inspections whose steps are read at once.
_CHUNK_INSPECTIONS: Final = 20


class PageQuery(msgspec.Struct, frozen=True):
    """Pagination of inspections, newest first."""

    limit: Limit | None = None
    marker: Uuid | None = None


class TimelineEntry(msgspec.Struct, frozen=True):
    """One step; ``hint`` is the advice for ``reason``."""

    uuid: str
    at: str | None
    step: str
    message: str
    severity: str
    reason: str | None
    hint: str | None
    process: str
    detail: dict[str, Any]


class InspectionView(msgspec.Struct, frozen=True):
    """An inspection; ``entries`` are its steps, present in a timeline only."""

    uuid: str
    node: str
    state: str
    started_at: str | None
    waiting_since: str | None
    finished_at: str | None
    manage_boot: bool
    reason: str | None
    hint: str | None
    error: str | None
    entries: list[TimelineEntry] | UnsetType = UNSET


class InspectionRoutes(msgspec.Struct, frozen=True):
    """A page of inspections, newest first."""

    inspections: list[InspectionView]
    next: str | UnsetType = UNSET


class Timeline(msgspec.Struct, frozen=True):
    """A page of inspections with their steps; ``entries`` are the newest 1000 steps outside inspections."""

    node: str
    provision_state: str
    inspections: list[InspectionView]
    entries: list[TimelineEntry]
    next: str | UnsetType = UNSET


def list_inspections(context: ApiContext, call: RouteCall[PageQuery, None]) -> Reply:
    """List the inspections of a node."""
    ident = node_ident(call)
    size = paging.page_size(call.query.limit, context.settings.api.max_limit)

    def work(tx: Transaction, room: Room) -> tuple[str, Page]:
        node, reduced = tx.nodes.get(ident), _hide_answers(context, call, tx.nodes.get(ident))
        query = _newest_first(call, node.uuid)
        return node.uuid, paging.page(room, tx.inspections, query, size, lambda item: _view(reduced(item)))

    node, page = context.data.read_list(work)
    return _reply({"inspections": page.items}, call, f"nodes/{node}/inspections", size, page.last)


def get_timeline(context: ApiContext, call: RouteCall[PageQuery, None]) -> Reply:
    """Show all steps of a node, grouped by inspection."""
    ident = node_ident(call)
    size = paging.page_size(call.query.limit, context.settings.api.max_limit)

    def work(tx: Transaction, room: Room) -> tuple[str, dict[str, Any], str | None]:
        node = tx.nodes.get(ident)
        reduced = _hide_answers(context, call, node)
        steps: dict[str | None, list[Entry]] = {}

        def with_steps(batch: Sequence[Inspection]) -> Iterator[Inspection]:
            for first in range(0, len(batch), _CHUNK_INSPECTIONS):
                inspections = batch[first : first + _CHUNK_INSPECTIONS]
                steps.clear()
                steps.update(_steps_by_inspection(tx, room, node.uuid, [inspection.uuid for inspection in inspections]))
                yield from inspections

        def show(inspection: Inspection) -> InspectionView:
            return _view(
                reduced(inspection), _in_order(map(reduced, steps.get(inspection.uuid, ())), inspection.started_at)
            )

        page = paging.page(room, tx.inspections, _newest_first(call, node.uuid), size, show, with_steps)
        body = {"node": node.uuid, "provision_state": str(node.provision_state), "inspections": page.items}
        return node.uuid, body | {"entries": _in_order(map(reduced, _others(tx, room, node.uuid)))}, page.last

    node, body, last = context.data.read_list(work)
    return _reply(body, call, f"nodes/{node}/timeline", size, last)


def _newest_first(call: RouteCall[PageQuery, None], node: str) -> Query:
    marker = paging.marker(call.query.marker)
    return Query(filters={"node": node}, marker=marker, sort_key="started_at", descending=True)


def _others(tx: Transaction, room: Room, node: str) -> list[Entry]:
    """Return the newest steps outside inspections, oldest first."""
    query = Query(filters={"node": node, "inspection": None}, sort_key="id", descending=True)
    steps: list[Entry] = []
    for batch in paging.groups(room, tx.journal, query, _CHUNK_STEPS):
        steps += batch
        if len(steps) >= _CHUNK_STEPS or room.read > 2 * room.limit:
            break
    return steps[_CHUNK_STEPS - 1 :: -1]


def _steps_by_inspection(
    tx: Transaction, room: Room, node: str, inspections: list[str]
) -> dict[str | None, list[Entry]]:
    steps: dict[str | None, list[Entry]] = defaultdict(list)
    query = Query(filters={"node": node, "inspection": tuple(inspections)}, sort_key="id")
    for batch in paging.groups(room, tx.journal, query):
        for entry in batch:
            steps[entry.inspection].append(entry)
    return steps


def _in_order(entries: Iterable[Entry], since: float = 0.0) -> list[TimelineEntry]:
    """Return the steps with times that never decrease.

    The time of a step is the start of its transaction, which may have waited for a lock. The database's clock may also
    have been set back.
    """
    steps = []
    for entry in entries:
        since = max(since, entry.at)
        steps.append(_step(entry, since))
    return steps


def _step(entry: Entry, at: float) -> TimelineEntry:
    return TimelineEntry(
        uuid=entry.uuid,
        at=iso_exact(at),
        step=entry.step,
        message=entry.message,
        severity=str(entry.severity),
        reason=entry.reason,
        hint=hint_of(entry.reason),
        process=entry.process,
        detail=entry.detail,
    )


def _view(inspection: Inspection, entries: list[TimelineEntry] | UnsetType = UNSET) -> InspectionView:
    return InspectionView(
        uuid=inspection.uuid,
        node=inspection.node,
        state=str(inspection.state),
        started_at=iso_exact(inspection.started_at),
        waiting_since=iso_exact(inspection.waiting_since),
        finished_at=iso_exact(inspection.finished_at),
        manage_boot=inspection.manage_boot,
        reason=inspection.reason,
        hint=hint_of(inspection.reason),
        error=inspection.error,
        entries=entries,
    )
