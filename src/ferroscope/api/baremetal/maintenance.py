"""The maintenance of a node. Source: the Bare Metal API reference."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import node_ident, shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso
from ferroscope.db import Transaction

_DETAILS: Final = ("maintenance_reason", "maintenance_until")


class Maintenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT /v1/nodes/{node}/maintenance; the body is optional. ``until``: when the maintenance ends by itself."""

    reason: str | None = None
    until: Annotated[str, msgspec.Meta(max_length=40, description="ISO 8601; UTC unless it has a zone.")] | None = None


def set_maintenance(context: ApiContext, call: RouteCall[NoQuery, Maintenance | None]) -> Reply:
    """Put the node into maintenance."""
    reason, until = (call.body.reason, call.body.until) if call.body is not None else (None, None)
    return _maintain(context, call, maintenance=True, reason=reason, until=until)


def clear_maintenance(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Take the node out of maintenance."""
    return _maintain(context, call, maintenance=False, reason=None)


def _maintain(
    context: ApiContext,
    call: RouteCall[NoQuery, Any],
    *,
    maintenance: bool,
    reason: str | None,
    until: str | None = None,
) -> Reply:
    ident, ends = node_ident(call), None if until is None else _moment(until)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        attributes = {name: value for name, value in node.attributes.items() if name not in _DETAILS}
        if reason is not None:
            attributes["maintenance_reason"] = reason
        if ends is not None:
            if ends <= tx.now:
                raise BadRequestError(f"Invalid until {shown_value(until)}: it is not in the future.")
            attributes["maintenance_until"] = iso(ends)
        tx.nodes.update(msgspec.structs.replace(node, maintenance=maintenance, attributes=attributes))

    context.data.store.write(work)
    return Reply(202)


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        # The last hours of the year 9999 of some zones cannot be written in UTC.
        return (moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise BadRequestError(
            f"Invalid until {shown_value(text)}: expected a time such as 2026-12-24T18:00:00Z."
        ) from None
