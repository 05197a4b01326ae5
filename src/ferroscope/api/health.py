"""Is this process able to serve? It is when its store answers, has taken its
latest heartbeat, and it is not about to stop.

A process that stops says so here first, and goes on serving for a while: load balancers send
new callers elsewhere before anything is closed.
"""

from __future__ import annotations

import msgspec

from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import UnavailableError


class Health(msgspec.Struct, frozen=True):
    """``status`` is always ``ok``: anything else is answered with 503."""

    status: str


def get_healthcheck(context: ApiContext, _call: Call[NoQuery, None]) -> Reply:
    """Answer 200 when the store answers a query and takes writes, and the process is not about to stop; else 503."""
    if context.draining.is_set():
        raise UnavailableError("This process is about to stop; others go on.", {"Retry-After": "1"})
    if not context.can_write():
        raise UnavailableError("Nothing can be written to the database.", {"Retry-After": "1"})
    try:
        context.store.read(lambda tx: tx.members.list())
    except Exception as exc:  # noqa: BLE001  # whatever it is, a load balancer shall go elsewhere
        context.log.warning("health check failed", error=type(exc).__name__)
        raise UnavailableError("The service cannot reach its database.", {"Retry-After": "1"}) from None
    return Reply(200, Health(status="ok"))
