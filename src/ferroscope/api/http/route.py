"""One row of the routes table: method and path, handler, types of query, body and response.

The Falcon app, the OpenAPI document and the policy names are all derived from these rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from ferroscope.api.auth.authentication import Authentication
from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.auth.policy import NoPolicy, Policy
from ferroscope.api.http.audit import Audit
from ferroscope.api.http.errors import ApiError, MissingError, NotAllowedError
from ferroscope.api.http.large_lists import Room, Turns
from ferroscope.api.http.middleware import Hosts
from ferroscope.api.http.rate_limit import Admission, Callers, PerMinute, RefusalCache
from ferroscope.api.http.remembered import Remembered
from ferroscope.api.http.sending import Places, Readers
from ferroscope.api.http.versions import Version
from ferroscope.api.http.writable import CanWrite, Writes
from ferroscope.config.options import Settings
from ferroscope.contracts.attached import Attached
from ferroscope.contracts.bmc import Bmc
from ferroscope.contracts.data import SharedMac
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.contracts.remote import Forwarder
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.json_safety import ready
from ferroscope.core.model import Node
from ferroscope.db.store import Store
from ferroscope.db.transaction import Transaction
from ferroscope.hooks.pipeline import Pipeline
from ferroscope.rules.builtin import RuleCache
from ferroscope.storage.reader import Archive
from ferroscope.telemetry.quiet_log import QuietLog

# A call as a handler receives it, and the reply that it returns.
#
# A call has already been validated against the route's types; handlers check semantics. A reply's body is a struct, a
# dict, or JSON bytes that are sent unchanged.

Q = TypeVar("Q")
B = TypeVar("B")
R = TypeVar("R")


class NoQuery(msgspec.Struct, frozen=True):
    """The route takes no query parameters."""


class Call(msgspec.Struct, Generic[Q, B], frozen=True, kw_only=True):
    """One call of a route.

    ``path``: the path's parameters. ``version``: the microversion; only ``minor`` ever differs. ``url``: the base URL
    by which the caller reaches this API, without a trailing slash. ``raw``: the body's bytes. ``introspection``:
    whether it arrived on that API's port. ``source``: the caller's address, "" if unknown. ``identity``: the caller.
    ``request_id``: of form ``req-UUID``, as in the response and in the log. ``forwarded``: by another such service.
    """

    path: dict[str, str]
    query: Q
    body: B
    version: Version
    url: str
    raw: bytes = b""
    introspection: bool = False
    source: str = ""
    identity: Identity = ANYBODY
    request_id: str = ""
    forwarded: bool = False

    @property
    def minor(self) -> int:
        return self.version[1]

    @property
    def node(self) -> str:
        return self.path["node"]


class Reply(msgspec.Struct, frozen=True):
    """The response; ``body`` None: no body."""

    status: int
    body: Any = None
    headers: dict[str, str] = {}


# What every handler receives: the store, the settings, and its other dependencies.
#
# It has no state of a call; one context serves all threads of the process.


class DatabaseInfo(msgspec.Struct, frozen=True):
    """The database in the status: its kind, its schema's version, and the version that this release needs."""

    kind: str
    schema: str | None
    schema_needed: str


class ApiContext(msgspec.Struct, frozen=True, kw_only=True):
    """The dependencies of the handlers.

    ``archive`` reads inspection data wherever it is stored. ``drivers`` by name, for listing and validation only.
    ``process`` is the name of this process in the journal. ``new_uuid`` and ``new_token`` are random and unguessable.
    ``log`` is a structlog logger. ``describe`` queries the database's kind and schema; ``clock`` is the host's.
    ``rules`` and ``pipeline`` are for dry runs; the latter raises ``HookSetupError``.
    ``metrics`` renders all metrics, None if they are disabled.
    ``conductor_of`` returns the host that a node shows as its conductor.
    ``refusals`` limits the logging of refused callbacks, ``limits`` that of a flood of unknown machines, ``outages``
    that of a database outage. ``refusal_cache`` limits the queries that a flood causes.
    ``sources`` counts the machines that each source has had discovered.
    ``shared_macs`` are the MACs that several machines reported, remembered where reading them is slow.
    ``files`` limits the files that are being sent at once; each holds a descriptor.
    ``callers`` determines where calls come from, and limits failures by source; ``hosts`` for which names.
    ``admission`` limits the calls of one caller, ``turns`` the large lists that are made at once.
    ``can_write`` returns whether this process has recently written its heartbeat, None if it has none; ``writes`` what
    its last calls have found.
    ``authentication`` determines who makes a call, ``policy`` decides what an identity may do.
    ``audit`` records calls; None if it is disabled.
    ``attached`` is the attached Ironic, if there is one.
    ``forwarder`` forwards callbacks that nobody waits for here; None: they are refused.
    ``draining`` is set when the process is about to stop and a load balancer must send it no new calls.
    """

    store: Store
    archive: Archive
    settings: Settings
    drivers: Mapping[str, Bmc]
    process: str
    new_uuid: Callable[[], str]
    new_token: Callable[[], str]
    log: Any
    clock: Clock
    describe: Callable[[], DatabaseInfo]
    rules: RuleCache
    pipeline: Callable[[], Pipeline]
    hosts: Hosts
    admission: Admission
    authentication: Authentication
    policy: Policy = msgspec.field(default_factory=NoPolicy)
    meter: Meter = SILENT
    conductor_of: Callable[[Node], str | None] = lambda _node: None
    metrics: Callable[[], bytes] | None = None
    refusals: QuietLog = msgspec.field(default_factory=QuietLog)
    limits: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))
    outages: QuietLog = msgspec.field(default_factory=lambda: QuietLog(burst=1))
    places: Places = msgspec.field(default_factory=Places)
    readers: Readers = msgspec.field(default_factory=Readers)
    callers: Callers = msgspec.field(default_factory=Callers)
    sources: PerMinute = msgspec.field(default_factory=PerMinute)
    refusal_cache: RefusalCache = msgspec.field(default_factory=RefusalCache)
    can_write: CanWrite | None = None
    writes: Writes = msgspec.field(default_factory=Writes)
    shared_macs: Remembered[Sequence[SharedMac]] = msgspec.field(default_factory=Remembered)
    turns: Turns = msgspec.field(default_factory=Turns)
    audit: Audit | None = None
    attached: Attached = msgspec.field(default_factory=Attached)
    forwarder: Forwarder | None = None
    draining: StopFlag = msgspec.field(default_factory=threading.Event)

    def read_list(self, work: Callable[[Transaction, Room], R]) -> R:
        """Run ``work``, which reads a list and may be run twice, on a consistent snapshot."""
        return self.turns.read(self.store, self.settings.api.max_page_size, work)


JSON: Final = "application/json"
BINARY: Final = "application/octet-stream"
PLAIN: Final = "text/plain; charset=utf-8"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"

_OF_NODES: Final = frozenset({"chassis", "nodes", "portgroups", "ports"})
_OF_INSPECTIONS: Final = ("/states/provision", "/inventory/reapply", "/approve", "/reject")

Handler = Callable[[ApiContext, Call[Any, Any]], Reply]
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

    ``policy``, or one of ``instead``, must allow a call; the handler checks what these alternatives are limited to.
    ``late``: the body names the node, so the handler checks the policy for callers of a project.
    ``also``: another success status, with the same body. ``response``: type of the body, a tuple if it is one of
    several. ``conflict``: type of the body of a 409 that has more fields than an error. ``ramdisk``: called by
    ramdisks, without authentication; can be disabled.
    ``refused`` is called for bodies over the limit: context, their beginning, the caller's address and the error.
    ``template`` is ``path`` in the router's syntax: the parameter of ``{name:path}`` may contain slashes.
    """

    method: str
    path: str
    template: str
    handler: Handler
    surface: Surface
    policy: str
    instead: tuple[str, ...]
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
    media: str
    refused: Refused | None

    def logged(self, path: str) -> str:
        """Return the path of a call as it may be logged: without a key that it contains."""
        return self.path if "{key}" in self.path else path

    @property
    def changes_nodes(self) -> bool:
        """Whether it changes what belongs to Ironic if one is attached: nodes, ports and the like."""
        kind = self.path.removeprefix("/v1/").partition("/")[0]
        return self.method != "GET" and kind in _OF_NODES and not self.path.endswith(_OF_INSPECTIONS)

    @property
    def policies(self) -> tuple[str, ...]:
        return (self.policy, *self.instead)

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
    media: str = JSON,
    refused: Refused | None = None,
    instead: tuple[str, ...] = (),
    late: bool = False,
) -> Route:
    """Return the route of ``endpoint`` (method and path); query and body come from the handler's types.

    ``raw`` is the type of a body that the handler decodes itself. A union with None means an optional body.
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
        instead=instead,
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
        media=media,
        refused=refused,
    )


def _without_none(body: Any) -> tuple[Any, bool]:
    """Return the body's type without None, and whether a body is required."""
    options = [part for part in get_args(body) if part is not type(None)]
    return (options[0], False) if len(options) == 1 and len(get_args(body)) == 2 else (body, True)


def _call_types(handler: Handler) -> tuple[type[msgspec.Struct], Any]:
    """Return Q and B of the handler's ``Call[Q, B]``; None if B is None."""
    call = next(hint for hint in get_type_hints(handler).values() if get_origin(hint) is Call)
    query, body = get_args(call)
    return query, None if body is type(None) else body
