"""One row of the routes table: method and path, handler, types of query, body and response.

The Falcon app, the OpenAPI document and the policy names are all derived from these rows.

Other packages add routes and pages by entry points in ``ferroscope.routes`` and ``ferroscope.pages``. Routes
(``AddedRoutes``) are served, described and restricted like the service's own. They cannot replace an existing route or
its policy. Pages (``AddPages``) are not routes of the table: they are not described, and decide themselves who may see
them. They get all they show by calling routes (``in_process``), whose policies then decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar, get_args, get_origin, get_type_hints

import falcon
import msgspec

from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.errors import ApiError, MissingError, NotAllowedError
from ferroscope.api.http.context import ApiContext
from ferroscope_client.core.json_safety import ready
from ferroscope_client.installed import PluginError

# A call as a handler receives it, and the reply that it returns.
#
# A call has already been validated against the route's types; handlers check semantics. A reply's body is a struct, a
# dict, or JSON bytes that are sent unchanged.

Q = TypeVar("Q")
B = TypeVar("B")


class NoQuery(msgspec.Struct, frozen=True):
    """The route takes no query parameters."""


class RouteCall(msgspec.Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One call of a route.

    ``path``: the path's parameters. ``minor``: of the microversion 1.``minor``. ``url``: the base URL by which the
    caller reaches this API, without a trailing slash. ``raw``: the body's bytes. ``introspection``: whether it arrived
    on that API's port. ``source``: the caller's address, "" if unknown. ``identity``: the caller. ``request_id``: of
    form ``req-UUID``, as in the response and in the log. ``forwarded``: by another such service.
    """

    path: dict[str, str]
    query: Q
    body: B
    minor: int
    url: str
    raw: bytes = b""
    introspection: bool = False
    source: str = ""
    identity: Identity = ANYBODY
    request_id: str = ""
    forwarded: bool = False


class Reply(msgspec.Struct, frozen=True):
    """The response; ``body`` None: no body."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}


JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
PLAIN: Final = "text/plain; charset=utf-8"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

_OF_NODES: Final = frozenset({"chassis", "nodes", "portgroups", "ports"})
_OF_INSPECTIONS: Final = ("/states/provision", "/inventory/reapply", "/approve", "/reject")

Handler = Callable[[ApiContext, RouteCall[Any, Any]], Reply]
Refused = Callable[[ApiContext, bytes, str, ApiError], None]


class Surface(StrEnum):
    """Which API a route belongs to; ``shared`` behaves like the API on whose port the call arrived."""

    BARE_METAL = "bare-metal"
    INTROSPECTION = "introspection"
    SHARED = "shared"
    SERVICE = "service"


class Body(StrEnum):
    """``decoded`` into the route's struct before the handler runs; ``raw``: decoded by the handler."""

    NONE = "none"
    DECODED = "decoded"
    RAW = "raw"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route. ``since``: the minor microversion in which it appeared; ``unsupported`` is the error of older ones.

    One of ``policies`` must allow a call: ``policy``, or an alternative whose limits the handler checks.
    ``late``: the body names the node, so for callers of a project the policy is asked once the body is there.
    ``also``: another success status, with the same body. ``response``: type of the body, a tuple if it is one of
    several. ``conflict``: type of the body of a 409 that has more fields than an error. ``ramdisk``: called by
    ramdisks, without authentication; can be disabled. ``in_flood``: such a call is answered however often its source
    has failed, because what it needs cannot be guessed.
    ``refused`` is called for bodies over the limit: context, their beginning, the caller's address and the error.
    ``template`` is ``path`` in the router's syntax: the parameter of ``{name:path}`` may contain slashes.
    ``endpoint`` is method and path.
    """

    method: str
    path: str
    template: str
    endpoint: str
    handler: Handler
    surface: Surface
    policy: str
    policies: tuple[str, ...]
    late: bool
    status: int
    also: int | None
    response: Any
    conflict: Any
    since: int
    unsupported: type[ApiError]
    query: type[msgspec.Struct]
    body: Any
    body_kind: Body
    body_required: bool
    ramdisk: bool
    in_flood: bool
    media: str
    refused: Refused | None

    @property
    def changes_nodes(self) -> bool:
        """Whether it changes what belongs to Ironic if one is attached: nodes, ports and the like."""
        kind = self.path.removeprefix("/v1/").partition("/")[0]
        return self.method != "GET" and kind in _OF_NODES and not self.path.endswith(_OF_INSPECTIONS)

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or self.operation).strip().splitlines()[0]

    @property
    def operation(self) -> str:
        """A name that is unique among all routes, for generated clients."""
        words = [word.strip("{}") for word in self.path.split("/") if word] or ["root"]
        return "_".join([self.method.lower(), *(words[1:] or words)]).replace(".", "_")

    @property
    def errors(self) -> tuple[int, ...]:
        """The error statuses that it may return, except 500."""
        possible = {
            400: True,
            401: True,
            403: True,
            404: True,
            405: self.unsupported is NotAllowedError,
            406: True,
            409: self.method != "GET" or self.ramdisk,
            412: self.method != "GET",
            413: self.body_kind is not Body.NONE,
            421: True,
            429: True,
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
    unsupported: type[ApiError] = MissingError,
    raw: Any = None,
    conflict: Any = None,
    also: int | None = None,
    ramdisk: bool = False,
    in_flood: bool = False,
    media: str = JSON,
    refused: Refused | None = None,
    instead: tuple[str, ...] = (),
    late: bool = False,
) -> Route:
    """Return the route of ``endpoint`` (method and path); query and body come from the handler's types.

    ``raw`` is the type of a body that the handler decodes itself. A union with None means an optional body.
    """
    method, template = endpoint.split()
    path = template.replace(":path}", "}")
    query, body = _call_types(handler)
    kind = Body.NONE if body is raw is None else Body.DECODED if raw is None else Body.RAW
    body, required = _without_none(body if raw is None else raw)
    ready(query, *([] if body is None else [body]))
    return Route(
        method=method,
        path=path,
        template=template,
        endpoint=f"{method} {path}",
        handler=handler,
        surface=surface,
        policy=policy,
        policies=(policy, *instead),
        late=late,
        status=status,
        also=also,
        response=response,
        conflict=conflict,
        since=since,
        unsupported=unsupported,
        query=query,
        body=body,
        body_kind=kind,
        body_required=required,
        ramdisk=ramdisk,
        in_flood=in_flood,
        media=media,
        refused=refused,
    )


def _without_none(body: Any) -> tuple[Any, bool]:
    """Return the body's type without None, and whether a body is required."""
    options = [part for part in get_args(body) if part is not type(None)]
    return (options[0], False) if len(options) == 1 and len(get_args(body)) == 2 else (body, True)


def _call_types(handler: Handler) -> tuple[type[msgspec.Struct], Any]:
    """Return Q and B of the handler's ``RouteCall[Q, B]``; None if B is None."""
    call = next(hint for hint in get_type_hints(handler).values() if get_origin(hint) is RouteCall)
    query, body = get_args(call)
    return query, None if body is type(None) else body


class AddPages(Protocol):
    def __call__(self, app: falcon.App[Any, Any], context: ApiContext, /) -> None:
        """Add the pages to the application, or none if they are disabled; import what they need only then."""


class AddedRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` are those of a package (see ``make``). ``after``: the one that they follow in descriptions of the
    API, such as ``GET /v1/search``; "" for the end.
    """

    rows: tuple[Route, ...]
    after: str = ""


def join_routes(own: Iterable[Route], more: Mapping[str, AddedRoutes]) -> tuple[Route, ...]:
    """Return the whole table; ``PluginError`` if a package adds what exists."""
    table = {route.endpoint: [route] for route in own}
    existing = set(table)
    last = table[next(reversed(table))]
    for name, addition in more.items():
        if taken := existing.intersection(route.endpoint for route in addition.rows):
            raise PluginError(f"the routes {name!r} add {min(taken)}, which exists already", "uninstall its package")
        existing.update(route.endpoint for route in addition.rows)
        table.get(addition.after, last).extend(addition.rows)
    return tuple(route for routes in table.values() for route in routes)
