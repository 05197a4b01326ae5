"""Is this process able to serve? It is when its store answers; nothing else is told."""

from __future__ import annotations

import msgspec

from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import UnavailableError


class Health(msgspec.Struct, frozen=True):
    """``status`` is always ``ok``: anything else is answered with 503."""

    status: str


def get_healthcheck(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Answer 200 when the store answers a query, else 503."""
    try:
        context.store.read(lambda tx: tx.members.list())
    except Exception as exc:  # noqa: BLE001  # whatever it is, a load balancer shall go elsewhere
        context.log.warning("health check failed", error=type(exc).__name__)
        raise UnavailableError("The service cannot reach its database.", {"Retry-After": "1"}) from None
    return Reply(200, Health(status="ok"))
