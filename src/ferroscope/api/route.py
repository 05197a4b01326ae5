"""One row of the routes table: what is served, to whom, and what goes in and out.

The Falcon app, the OpenAPI document and the policy names are all made from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from ferroscope.api.call import Call, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.errors import ApiError
from ferroscope.core.json_safety import ready

JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

Handler = Callable[[ApiContext, Call[Any, Any]], Reply]
Refused = Callable[[ApiContext, bytes, str, ApiError], None]


class Surface(StrEnum):
    """Which API a route belongs to; ``shared`` speaks the language of the listener it came in by."""

    BARE_METAL = "bare-metal"
    INTROSPECTION = "introspection"
    SHARED = "shared"
    SERVICE = "service"


class Body(StrEnum):
    """``decoded`` into the route's struct before the handler; ``raw`` is left to the handler."""

    NONE = "none"
    DECODED = "decoded"
    RAW = "raw"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """``since``: the minor microversion below which the route does not exist.

    ``also``: another status of success, with the same body. ``response``: type of the body, a tuple for one of
    several. ``conflict``: type of the body of a 409 that says more than an error does. ``ramdisk``: called by ramdisks,
    without authentication; can be switched off.
    ``refused`` hears of bodies that are too large: context, their beginning, the caller's address and the error.
    ``template`` is ``path`` as the router wants it: the parameter of ``{name:path}`` may hold slashes.
    """

    method: str
    path: str
    template: str
    handler: Handler
    surface: Surface
    policy: str
    status: int
    also: int | None
    response: Any
    conflict: Any
    since: int
    query: type[msgspec.Struct]
    body: Any
    body_kind: Body
    body_required: bool
    ramdisk: bool
    media: str
    refused: Refused | None

    @property
    def summary(self) -> str:
        """What the handler says of itself, in a line."""
        return (self.handler.__doc__ or self.operation).strip().splitlines()[0]

    @property
    def operation(self) -> str:
        """A name that is unique over all routes, for generated clients."""
        words = [word.strip("{}") for word in self.path.split("/") if word] or ["root"]
        return "_".join([self.method.lower(), *(words[1:] or words)]).replace(".", "_")

    @property
    def errors(self) -> tuple[int, ...]:
        """The statuses of the errors that it may answer, 5xx of our own faults apart."""
        possible = {
            400: True,
            403: self.ramdisk or self.conflict is not None,
            404: True,
            406: True,
            409: self.method != "GET" or self.ramdisk,
            413: self.body_kind is not Body.NONE,
            429: self.ramdisk,
            503: True,
        }
        return tuple(status for status, is_possible in possible.items() if is_possible)


def make(
    surface: Surface,
    endpoint: str,
    handler: Handler,
    policy: str,
    status: int,
    response: Any = None,
    *,
    since: int = 0,
    raw: Any = None,
    conflict: Any = None,
    also: int | None = None,
    ramdisk: bool = False,
    media: str = JSON,
    refused: Refused | None = None,
) -> Route:
    """Return the route of ``endpoint`` (method and path); query and body come from the handler's types.

    ``raw`` is the type of a body that the handler takes apart by itself. A union with None is a
    body that may be left out.
    """
    method, template = endpoint.split()
    query, body = _call_types(handler)
    kind = Body.NONE if body is raw is None else Body.DECODED if raw is None else Body.RAW
    body, required = _without_none(body if raw is None else raw)
    ready(query, *([] if body is None else [body]))
    return Route(
        method=method,
        path=template.replace(":path}", "}"),
        template=template,
        handler=handler,
        surface=surface,
        policy=policy,
        status=status,
        also=also,
        response=response,
        conflict=conflict,
        since=since,
        query=query,
        body=body,
        body_kind=kind,
        body_required=required,
        ramdisk=ramdisk,
        media=media,
        refused=refused,
    )


def _without_none(body: Any) -> tuple[Any, bool]:
    """Return the type that a body has when there is one, and whether there must be one."""
    options = [part for part in get_args(body) if part is not type(None)]
    return (options[0], False) if len(options) == 1 and len(get_args(body)) == 2 else (body, True)


def _call_types(handler: Handler) -> tuple[type[msgspec.Struct], Any]:
    """Return Q and B of the handler's ``Call[Q, B]``; None for a B of None."""
    call = next(hint for hint in get_type_hints(handler).values() if get_origin(hint) is Call)
    query, body = get_args(call)
    return query, None if body is type(None) else body
