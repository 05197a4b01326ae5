"""Request IDs: one for each call, in its response and in each of its log lines.

A caller may send its own ID in ``X-Openstack-Request-Id``, to find its calls in the logs of several services. It only
goes into our log, as ``global_request_id``: a caller must not choose the ID by which we tell calls apart.
Source: the OpenStack API guidelines on request IDs, oslo.middleware.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import falcon
import structlog

HEADER: Final = "Openstack-Request-Id"
_STANDARD_HEADER: Final = "X-Openstack-Request-Id"
_GIVEN: Final = "HTTP_X_OPENSTACK_REQUEST_ID"
_KEY: Final = "ferroscope.request_id"
# The other key of an environ that server and application agree on. Present if the body has not been read: it is only
# decided whether to read it. A response with status 100 means yes; any other response is final.
HEAD_ONLY: Final = "ferroscope.head_only"
# Which API a web server serves here, bare-metal or introspection, if its port does not tell; no header has this name.
API: Final = "FERROSCOPE_API"
_FORM: Final = re.compile(r"req-[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")


def new_request_id() -> str:
    """Return an ID for a request that does not reach the application."""
    return f"req-{uuid.uuid4()}"


def of(env: Mapping[str, Any]) -> str:
    """Return the ID of the request with this environ."""
    return str(env.get(_KEY, ""))


class RequestIds:
    """Falcon middleware; it comes first, so that the responses of the others have an ID too."""

    def __init__(self, new_uuid: Callable[[], str]) -> None:
        self._new_uuid = new_uuid

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        env = req.env
        env[_KEY] = ident = f"req-{self._new_uuid()}"
        structlog.contextvars.clear_contextvars()  # of the thread's previous call
        given = env.get(_GIVEN)
        if given is not None and _FORM.fullmatch(given):
            structlog.contextvars.bind_contextvars(request_id=ident, global_request_id=given)
        else:
            structlog.contextvars.bind_contextvars(request_id=ident)

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: object, _ok: bool) -> None:
        resp.set_header(HEADER, of(req.env))
        resp.set_header(_STANDARD_HEADER, of(req.env))
        structlog.contextvars.clear_contextvars()
