"""Calls of routes within the process: for the web page, with the rights of its caller.

The same policies decide, the same handlers answer and the same audit events are written as for a call over HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ferroscope.api import errors
from ferroscope.api.auth import access
from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.http.audit import IDENTITY, event_of, is_recorded
from ferroscope.api.http.authorization import admits_anybody, visible
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.dispatch import on_behalf_of
from ferroscope.api.http.route import Body, Reply, Route, RouteCall
from ferroscope.api.http.versions import BARE_METAL
from ferroscope.contracts.store import Audited, CallContext, Receipt
from ferroscope.core.audit import AuditEvent
from ferroscope_client.core import json_safety


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who calls; ``url``, ``source`` and ``request_id`` are those of the request that causes the calls."""

    identity: Identity
    url: str
    source: str
    request_id: str


def perform(
    context: ApiContext,
    route: Route,
    caller: Caller,
    *,
    path: Mapping[str, str],
    query: Mapping[str, Any],
    body: Any = None,
) -> Reply:
    """Return the reply of the route at the newest microversion; ``ApiError`` as its caller over HTTP would get it.

    ``query`` has values of the types of the route's query, ``body`` is built-in data.
    """
    environ = {IDENTITY: caller.identity}

    def event() -> AuditEvent:
        return event_of(
            environ,
            request_id=caller.request_id,
            source=caller.source,
            policy=route.policy,
            call=route.endpoint,
            target=next(iter(path.values()), ""),
            status=route.status,
        )

    audit, audited = context.access.audit, None
    try:
        if admits_anybody(context.access):
            identity = ANYBODY
        else:
            identity = access.authorize(
                context.access.policy,
                route.policies,
                lambda: caller.identity,
                lambda identity: visible(context, identity, path, named=True),
                path,
                late=route.late,
            )
        if route.changes_nodes and (attached := context.services.attached) is not None:
            attached.check_change(route.endpoint)
        if is_recorded(route.endpoint):
            audited = None if audit is None else Audited(event())
            context = on_behalf_of(context, CallContext(audited=audited, receipt=Receipt()))
        call: RouteCall[Any, Any] = RouteCall(
            path=dict(path),
            query=route.query(**query),
            body=_body(route, body),
            minor=BARE_METAL.maximum[1],
            url=caller.url,
            source=caller.source,
            identity=identity,
            request_id=caller.request_id,
        )
        reply = route.handler(context, call)
    except Exception as exc:
        error = errors.translate(exc)
        if error is None:
            raise
        if audit is not None:
            audit.write_outcome(audited, error.status, event)
        raise error from exc
    if audit is not None:
        audit.write_outcome(audited, reply.status, event)
    return _decode_items(reply)


def _decode_items(reply: Reply) -> Reply:
    """Return the reply with the items of a list, which are encoded, as built-in data."""
    if not isinstance(reply.body, dict):
        return reply
    body = {
        name: [json_safety.decode_own(item) for item in value] if _are_encoded(value) else value
        for name, value in reply.body.items()
    }
    return msgspec.structs.replace(reply, body=body)


def _are_encoded(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], msgspec.Raw)


def _body(route: Route, body: Any) -> Any:
    if route.body_kind is not Body.DECODED or (body is None and not route.body_required):
        return None
    try:
        return msgspec.convert(body, route.body)
    except msgspec.ValidationError as exc:
        raise errors.BadRequestError(f"Invalid request: {exc}.") from None
