"""``GET /v1/audit``: who called the API, and what it changed."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ferroscope.api.http import decoding, paging
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Reply, RouteCall
from ferroscope.api.http.schemas import Limit, iso_exact
from ferroscope.contracts.errors import NotFoundError
from ferroscope.core.audit import AuditEvent
from ferroscope.db import Transaction
from ferroscope_client.core.values import is_uuid


class AuditQuery(msgspec.Struct, frozen=True):
    """``node``: a name or UUID; ``since``: at most this many seconds ago; ``before``: older than this event."""

    node: Annotated[str, Meta(max_length=255)] | None = None
    user: Annotated[str, Meta(max_length=255)] | None = None
    since: Annotated[int, Meta(ge=0, le=10**10)] | None = None
    before: Annotated[int, Meta(ge=1, le=2**63 - 1)] | None = None
    limit: Limit | None = None


class AuditView(msgspec.Struct, frozen=True):
    """An audit event; see ``core.audit.AuditEvent``."""

    id: int
    at: str | None
    user: str
    method: str
    project: str | None
    source: str
    request_id: str
    policy: str
    call: str
    target: str
    node: str | None
    status: int


class AuditList(msgspec.Struct, frozen=True):
    """A page of events, newest first; ``before`` of the next page is ``next``."""

    events: list[AuditView]
    next: int | UnsetType = UNSET


def list_audit(context: ApiContext, call: RouteCall[AuditQuery, None]) -> Reply:
    """List audit events, newest first."""
    asked = call.query
    size = paging.page_size(asked.limit, context.settings.api.max_limit)

    def work(tx: Transaction) -> list[AuditEvent]:
        since = 0.0 if asked.since is None else tx.now - asked.since
        node = None if asked.node is None else _uuid(tx, asked.node)
        events = tx.audit.list(limit=size + 1, before=asked.before, since=since, node=node, user=asked.user)
        return list(events)

    events = context.data.store.read(work)
    shown = [_view(event) for event in events[:size]]
    return Reply(200, AuditList(events=shown, next=events[size - 1].id if len(events) > size else UNSET))


def _uuid(tx: Transaction, ident: str) -> str:
    """Return the node's UUID; the events of a deleted node are found by its UUID."""
    ident = decoding.ident("node", ident)
    try:
        return tx.nodes.get(ident).uuid
    except NotFoundError:
        if is_uuid(ident):
            return ident
        raise


def _view(event: AuditEvent) -> AuditView:
    fields = msgspec.structs.asdict(event)
    return AuditView(**fields | {"at": iso_exact(event.at)})
