"""The span of a call that starts an inspection or brings its data.

The header ``traceparent`` counts only if the caller is authenticated: others could put inspections into any trace.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ferroscope.api.auth.identity import Identity
from ferroscope.api.http.route import ApiContext, Route
from ferroscope.contracts import telemetry
from ferroscope.contracts.telemetry import CALL, Span


@contextmanager
def traced(context: ApiContext, route: Route, environ: Mapping[str, Any], identity: Identity) -> Iterator[None]:
    """Record the call when it has succeeded, if it concerns an inspection and traces are enabled."""
    tracer = context.meter.tracer
    if tracer is None:
        yield
        return
    given = "" if identity.method == "none" else telemetry.valid_traceparent(environ.get("HTTP_TRACEPARENT", ""))
    call, began = telemetry.Call(given), context.clock.time()
    token = CALL.set(call)
    try:
        yield
    finally:
        CALL.reset(token)
    if (one := call.inspection) is not None:
        tracer.record(
            Span(
                name=f"{route.method} {route.path}",
                trace=telemetry.trace_of(one)[0],
                id=secrets.token_hex(8),
                parent=telemetry.span_of(one),
                began=began,
                ended=context.clock.time(),
                kind="server",
                attributes={"http.request.method": route.method, "http.route": route.path},
            )
        )
