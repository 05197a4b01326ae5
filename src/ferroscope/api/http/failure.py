"""The response for an exception, which is logged if it is a fault of the service or of its database."""

from __future__ import annotations

import falcon

from ferroscope.api import errors
from ferroscope.api.http.arrivals import REQUEST_ID, SAFE
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Reply
from ferroscope.api.http.versions import INTROSPECTION, ApiDialect
from ferroscope.contracts.errors import StoreError
from ferroscope.http_server.agreed import retries_after


def failure(context: ApiContext, req: falcon.Request, exc: Exception, dialect: ApiDialect) -> Reply:
    """Return the response for an exception; an internal error is logged in full and reported by its request ID."""
    api_error = errors.translate(exc)
    if api_error is None:
        context.process.log.error("request failed", method=req.method, path=req.path, exc_info=exc)
        api_error = errors.ApiError(errors.INTERNAL_MESSAGE.format(request_id=req.env.get(REQUEST_ID, "")))
    if isinstance(exc, StoreError):
        if req.method not in SAFE:
            context.data.writes.failed_at = context.process.clock.monotonic()
            context.data.writes.failure = exc.failure
        _log_outage(context, req, exc)
    body = errors.introspection_body if dialect is INTROSPECTION else errors.bare_metal_body
    headers = api_error.headers
    if not retries_after(req.user_agent or ""):  # the client is known to break on it
        headers = {name: value for name, value in headers.items() if name != "Retry-After"}
    return Reply(api_error.status, body(api_error.status, api_error.message), headers)


def _log_outage(context: ApiContext, req: falcon.Request, exc: StoreError) -> None:
    left_out = context.data.outages.admit(context.process.clock.monotonic())
    if left_out is not None:
        context.process.log.warning(
            "request not answered", method=req.method, path=req.path, why=str(exc), left_out=left_out
        )
