"""One call, from a WSGI request to its answer: a list of named steps on an ``Exchange``.

``steps_of`` says which steps a route needs, in their order. A step reads and extends the exchange, answers, or raises.
This is the only place where an exception becomes an answer, so neither bad input nor an internal error ever reveals
more than a generic message. It is independent of what a route does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from time import perf_counter
from typing import Any, Final

import falcon
import msgspec
import structlog

from ferroscope.api import errors
from ferroscope.api.auth import access
from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.http import conditions, decoding, versions
from ferroscope.api.http.arrivals import REQUEST_ID, SAFE, SUFFIX, SUFFIX_REMOVED
from ferroscope.api.http.audit import IDENTITY, event_of, is_recorded
from ferroscope.api.http.authorization import admit_by_body, admits_anybody, visible
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.failure import failure
from ferroscope.api.http.route import Body, NoQuery, Reply, Route, RouteCall, Surface
from ferroscope.api.http.served_files import ServedFile, reply_with
from ferroscope.api.http.versions import BARE_METAL, INTROSPECTION, Version
from ferroscope.api.rate_limit import too_many_failures
from ferroscope.config.options import Settings
from ferroscope.contracts import telemetry
from ferroscope.contracts.errors import NotFoundError, OutcomeUnknownError
from ferroscope.contracts.store import NO_CALL, Audited, CallContext, Query, Receipt, RepeatedCallError
from ferroscope.contracts.telemetry import Span, TracedCall
from ferroscope.core.audit import LOGIN, AuditEvent
from ferroscope.core.model import Inspection
from ferroscope.http_server.agreed import HEAD_ONLY, SOURCE
from ferroscope.http_server.file_part import FilePart
from ferroscope_client.core import values
from ferroscope_client.core.values import limit_key

# Which API a web server serves here, bare-metal or introspection, if its port does not tell; no header has this name.
_API: Final = "FERROSCOPE_API"
_CROSS_ORIGIN: Final = ("cross-site", "same-site")
_NO_QUERY: Final = NoQuery()
_CONTINUE: Final = Reply(100)

_access = structlog.get_logger("ferroscope.access")
_encode = msgspec.json.Encoder(decimal_format="number").encode

Responder = Callable[..., None]


class Exchange:
    """One call of a route and what the steps make of it: ``version``, ``identity``, ``call`` and others.

    ``dialect`` decides the form of errors. ``source``: the caller's address, "" if unknown. ``demands``: of the
    handler's transactions. ``cleanup`` ends what a step began, after the handler.
    """

    def __init__(self, context: ApiContext, route: Route, req: falcon.Request, path: dict[str, str]) -> None:
        self.context = context
        self.route = route
        self.req = req
        self.path = path
        self.introspection = arrives_at_introspection(context.settings, req)
        surfaces = (Surface.INTROSPECTION, Surface.SHARED) if self.introspection else (Surface.INTROSPECTION,)
        self.dialect = INTROSPECTION if route.surface in surfaces else BARE_METAL
        self.request_id: str = req.env.get(REQUEST_ID, "")
        self.source: str = req.env.get(SOURCE, "")
        self.version: Version | None = None
        self.minor = 0
        self.identity = ANYBODY
        self.call: RouteCall[Any, Any]
        self.receipt: Receipt | None = None
        self.demands = NO_CALL
        self.counts_failures = False
        self.cleanup = ExitStack()


Step = Callable[[Exchange], Reply | None]


def read_version(exchange: Exchange) -> None:
    """Set the version of the API that the caller asks for."""
    environ, dialect = exchange.req.env, exchange.dialect
    exchange.version = versions.requested_version(
        environ.get(versions.STANDARD), environ.get(dialect.environ_key), dialect
    )
    exchange.minor = exchange.version[1]


def restore_suffix(exchange: Exchange) -> None:
    """Have the path mean the node whose name ends in ``.json``, if there is none without that."""
    req, name = exchange.req, exchange.path.get("node", "")
    if SUFFIX_REMOVED not in req.env or not req.path.endswith(f"/nodes/{name}") or values.is_uuid(name):
        return
    with_suffix = name + SUFFIX
    query = Query(filters={"name": (name, with_suffix)})
    nodes = exchange.context.data.store.read(lambda tx: tx.nodes.list(query))
    if [node.name for node in nodes] == [with_suffix]:
        exchange.path = exchange.path | {"node": with_suffix}


def refuse_cross_site(exchange: Exchange) -> None:
    """Refuse what a browser sends on behalf of a web page: ``ForbiddenError``.

    Without authentication, or with credentials that the browser has stored, any web page could otherwise make an
    operator's browser restart machines. Browsers say where a request comes from in headers that no page can forge, and
    that no client, ramdisk or BMC sends. Following a link to a document is allowed.
    Source: the Fetch standard, Fetch Metadata.
    """
    environ, safe = exchange.req.env, exchange.req.method in SAFE
    follows_link = safe and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    cross_origin = environ.get("HTTP_SEC_FETCH_SITE") in _CROSS_ORIGIN and not follows_link
    if cross_origin or (not safe and "HTTP_ORIGIN" in environ):
        raise errors.ForbiddenError("Cross-site requests from web pages are not allowed (Origin, Sec-Fetch-Site).")


def require_ramdisk_endpoints(exchange: Exchange) -> None:
    """Refuse a ramdisk's call where these are disabled: ``ForbiddenError``."""
    if not exchange.context.settings.api.enable_ramdisk_endpoints:
        raise errors.ForbiddenError("The ramdisk endpoints are disabled ([api] enable_ramdisk_endpoints).")


def require_version(exchange: Exchange) -> None:
    """Refuse a version that does not have the route yet."""
    route = exchange.route
    if exchange.minor < route.since:
        raise route.unsupported(
            f"{exchange.req.path} requires API version 1.{route.since} or newer; the request uses 1.{exchange.minor}."
        )


def authorize(exchange: Exchange) -> None:
    """Set the identity of a caller who may make this call. The body has not been read yet."""
    context, route, path = exchange.context, exchange.route, exchange.path
    named = route.surface is Surface.INTROSPECTION or exchange.minor >= decoding.NAMES_SINCE
    exchange.identity = access.authorize(
        context.access.policy,
        route.policies,
        partial(_identify, exchange),
        lambda identity: visible(context, identity, path, named=named),
        path,
        late=route.late,
    )


def protect_attached(exchange: Exchange) -> None:
    """Refuse a change of what belongs to an attached Ironic."""
    if (attached := exchange.context.services.attached) is not None:
        attached.check_change(exchange.route.endpoint)


def invite_body(exchange: Exchange) -> Reply | None:
    """Have the server read the body, if it waits for that decision. The call then comes again, with its body."""
    return _CONTINUE if HEAD_ONLY in exchange.req.env else None


def limit_caller(exchange: Exchange) -> None:
    """Count the call for its caller while it runs: ``TooManyError``."""
    caller = exchange.identity.principal or limit_key(exchange.source)
    exchange.cleanup.enter_context(exchange.context.access.admission.admit(caller))


def read_call(exchange: Exchange) -> None:
    """Read and decode what the route needs: query and body."""
    context, route, req = exchange.context, exchange.route, exchange.req
    raw = b"" if route.body_kind is Body.NONE else decoding.read_body(context.settings, route, req)
    if route.late:
        admit_by_body(context, route, exchange.identity, raw)
    req.env.setdefault(IDENTITY, exchange.identity)
    if req.query_string:
        query = decoding.decode_query(req.params, route.query)
    else:
        query = _NO_QUERY if route.query is NoQuery else route.query()
    decodes = route.body_kind is Body.DECODED and (raw or route.body_required)
    is_introspection = exchange.introspection or route.surface is Surface.INTROSPECTION
    public = "" if is_introspection else context.settings.api.public_url
    exchange.call = RouteCall(
        path=exchange.path,
        query=query,
        body=decoding.decode(raw, route.body) if decodes else None,
        minor=exchange.minor,
        url=public.rstrip("/") if public else req.prefix,
        raw=raw,
        introspection=exchange.introspection,
        source=exchange.source,
        identity=exchange.identity,
        request_id=exchange.request_id,
        forwarded="HTTP_FERROSCOPE_FORWARDED" in req.env,
    )


def apply_conditions(exchange: Exchange) -> None:
    """Apply ``Idempotency-Key`` and ``If-Lease``: ``RepeatedCallError``, ``PreconditionError``."""
    environ, data = exchange.req.env, exchange.context.data
    if conditions.KEY in environ:
        exchange.receipt = conditions.receipt_of(data, exchange.route, environ, exchange.identity, exchange.call.raw)
    if conditions.LEASE in environ:
        lease = conditions.lease_of(environ)
        exchange.demands = CallContext(lease=lease)
        exchange.cleanup.enter_context(conditions.leading(data, lease))


def begin_trace(exchange: Exchange) -> None:
    """Record the call when it has succeeded, if it concerns an inspection."""
    environ = exchange.req.env
    traceparent = "" if exchange.identity.method == "none" else environ.get("HTTP_TRACEPARENT", "")
    traced = TracedCall(telemetry.valid_traceparent(traceparent))
    exchange.demands = msgspec.structs.replace(exchange.demands, traced=traced)
    began = exchange.context.process.clock.time()

    def end(kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and traced.inspection is not None:
            _record_span(exchange, traced.inspection, began)

    exchange.cleanup.push(end)


def begin_change(exchange: Exchange) -> None:
    """Have the store write the call's event and its receipt with the change."""
    audited = None if exchange.context.access.audit is None else Audited(_event(exchange))
    receipt = exchange.receipt or Receipt()
    exchange.demands = msgspec.structs.replace(exchange.demands, audited=audited, receipt=receipt)


def limit_failures(exchange: Exchange) -> None:
    """Refuse a call of a ramdisk in a flood of its source's failures, before any query: ``TooManyError``.

    A machine that we wait for must not suffer from the failures of others with its address, as behind NAT. So a source
    with fewer failures still gets an answer about such a machine. This bounds how fast MAC addresses can be tried. A
    call whose handler refuses it counts as a failure, and is refused like that if there were too many.
    """
    now = exchange.context.process.clock.monotonic()
    if not exchange.route.in_flood and (wait := exchange.context.access.callers.wait_for_any(exchange.source, now)):
        raise too_many_failures(wait)
    exchange.counts_failures = True


def steps_of(context: ApiContext, route: Route) -> tuple[Step, ...]:
    """Return the steps that a route needs before its handler, in their order."""
    # Ramdisks have limits of their own.
    exempt = route.ramdisk or route.policy in ("public_api", access.METRICS)
    steps: dict[Step, bool] = {
        read_version: True,
        restore_suffix: "{node}" in route.path,
        refuse_cross_site: True,
        require_ramdisk_endpoints: route.ramdisk,
        require_version: route.since > 0,
        authorize: not admits_anybody(context.access),
        protect_attached: route.changes_nodes and context.services.attached is not None,
        invite_body: True,
        limit_caller: context.access.admission.limited and not exempt,
        read_call: True,
        apply_conditions: True,
        begin_trace: context.process.meter.tracer is not None,
        begin_change: is_recorded(route.endpoint) and not route.ramdisk,
        limit_failures: route.ramdisk,
    }
    return tuple(step for step, is_needed in steps.items() if is_needed)


def responder(context: ApiContext, route: Route) -> Responder:
    """Return the Falcon responder that serves ``route``."""
    steps = steps_of(context, route)
    # A path with a key is not logged.
    logged = route.path if "{key}" in route.path else None

    def respond(req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        began = perf_counter()
        exchange = Exchange(context, route, req, path)
        try:
            reply = run_steps(exchange, steps)
        except falcon.HTTPError:
            raise  # Falcon's own errors, such as invalid headers, are handled by the application
        except Exception as exc:  # noqa: BLE001  # the boundary: an internal error becomes a generic response
            reply = answer_error(exchange, exc)
        if reply is _CONTINUE:
            resp.status = 100
            return
        finish(exchange, reply, resp)
        record(context, req, resp, req.method, route.path, perf_counter() - began, path=logged)

    return respond


def run_steps(exchange: Exchange, steps: Sequence[Step]) -> Reply:
    """Return the answer of the first step that has one, or of the route's handler."""
    with exchange.cleanup:
        for step in steps:
            reply = step(exchange)
            if reply is not None:
                return reply
        context = exchange.context if exchange.demands is NO_CALL else on_behalf_of(exchange.context, exchange.demands)
        reply = exchange.route.handler(context, exchange.call)
        exchange.counts_failures = False
        if isinstance(reply.body, ServedFile):
            return reply_with(reply.body, exchange.req.env, exchange.source, exchange.context)
        return reply


def on_behalf_of(context: ApiContext, demands: CallContext) -> ApiContext:
    """Return the context for a call's handler, all of whose writes meet what the call demands."""
    data = msgspec.structs.replace(context.data, store=context.data.store.on_behalf_of(demands))
    return msgspec.structs.replace(context, data=data)


def answer_error(exchange: Exchange, exc: Exception) -> Reply:
    """Return the answer to a call whose steps ended with an exception."""
    context, route, req = exchange.context, exchange.route, exchange.req
    if isinstance(exc, RepeatedCallError):
        try:
            return conditions.replay(context.data, route, str(exc))
        except Exception as failed:  # noqa: BLE001  # the boundary, as in ``responder``
            return failure(context, req, failed, exchange.dialect)
    if exchange.counts_failures:
        exc = _count_failure(exchange, exc)
    if isinstance(exc, OutcomeUnknownError) and route.ramdisk:
        exc = errors.UnavailableError(errors.REPEAT_IT, {"Retry-After": "1"})
    if isinstance(exc, errors.BodyTooLargeError) and route.refused is not None:
        route.refused(context, decoding.beginning(req), exchange.source, exc)
    return failure(context, req, exc, exchange.dialect)


def _count_failure(exchange: Exchange, exc: Exception) -> Exception:
    """Return the error that the caller gets: another one if its source has failed too often."""
    guesses = exc.guesses if isinstance(exc, errors.ApiError) else int(isinstance(exc, NotFoundError))
    now = exchange.context.process.clock.monotonic()
    wait = exchange.context.access.callers.count_failure(exchange.source, now, guesses)
    return too_many_failures(wait) if wait else exc


def finish(exchange: Exchange, reply: Reply, resp: falcon.Response) -> None:
    """Write the audit event, keep the answer for whoever repeats the call, and send it."""
    context, route = exchange.context, exchange.route
    if reply.status < 300 and route.method not in SAFE:
        context.data.writes.failure = None
    audit, audited = context.access.audit, exchange.demands.audited
    if audit is not None and (audited is not None or reply.status >= 400 or audit.left_out):
        audit.write_outcome(audited, reply.status, lambda: _event(exchange), ramdisk=route.ramdisk)
    if exchange.receipt is not None:
        conditions.keep(context.data, route, exchange.receipt, reply)
    _send(resp, reply, route.media if reply.status < 300 else falcon.MEDIA_JSON)
    resp.set_headers(versions.headers(exchange.dialect, exchange.version))


def record(
    context: ApiContext,
    req: falcon.Request,
    resp: falcon.Response,
    method: str,
    route: str,
    seconds: float,
    *,
    path: str | None = None,
) -> None:
    """Count the call, and log it if configured: without its query string, which may contain a lease's token."""
    status = int(resp.status_code)
    context.process.meter.record_response(method, route, status, seconds)
    if context.settings.log.access:
        _access.info(
            "call",
            source=req.env.get(SOURCE, ""),
            method=req.method,
            path=req.path if path is None else path,
            status=status,
            bytes=len(resp.data or b""),
            ms=round(seconds * 1000, 1),
        )


def arrives_at_introspection(settings: Settings, req: falcon.Request) -> bool:
    """Return whether the call arrived on the Introspection API's port, or where a web server serves that API."""
    if api := req.env.get(_API):
        return bool(api == "introspection")
    port = settings.api.introspection_port
    return port != 0 and req.env.get("SERVER_PORT") == str(port)


def send_failure(context: ApiContext, req: falcon.Request, resp: falcon.Response, exc: Exception) -> None:
    """Send the response for an error outside any route: an unknown path, a method that is not allowed."""
    introspection = arrives_at_introspection(context.settings, req) or req.path.startswith("/v1/introspection")
    dialect = INTROSPECTION if introspection else BARE_METAL
    _send(resp, failure(context, req, exc, dialect))
    resp.set_headers(versions.headers(dialect, None))
    record(context, req, resp, req.method if req.method in falcon.HTTP_METHODS else "other", "none", 0.0)


def _identify(exchange: Exchange) -> Identity:
    """Return the identity of the caller, and keep it for the audit of a refused call."""
    environ, control = exchange.req.env, exchange.context.access

    def record_login(identity: Identity) -> None:
        """Record that a password was right that was not used lately."""
        if control.audit is not None:
            environ[IDENTITY] = identity
            event = msgspec.structs.replace(_event(exchange), policy="", call=LOGIN, target="", status=200)
            control.audit.logged_in(event)

    environ[IDENTITY] = identity = control.authentication.identify(environ, record_login)
    return identity


def _event(exchange: Exchange) -> AuditEvent:
    route, environ = exchange.route, exchange.req.env
    return event_of(
        environ,
        request_id=exchange.request_id,
        source=exchange.source,
        policy=route.policy,
        call=route.endpoint,
        target=next(iter(exchange.path.values()), ""),
        status=route.status,
        claims="" if IDENTITY in environ else exchange.context.access.authentication.claimed_name(environ),
    )


def _record_span(exchange: Exchange, inspection: Inspection, began: float) -> None:
    route, process = exchange.route, exchange.context.process
    if process.meter.tracer is not None:
        process.meter.tracer.record(
            Span(
                name=route.endpoint,
                trace=telemetry.trace_of(inspection)[0],
                id=secrets.token_hex(8),
                parent=telemetry.span_of(inspection),
                began=began,
                ended=process.clock.time(),
                kind="server",
                attributes={"http.request.method": route.method, "http.route": route.path},
            )
        )


def _send(resp: falcon.Response, reply: Reply, media: str = falcon.MEDIA_JSON) -> None:
    resp.status = reply.status
    if reply.headers:
        resp.set_headers(reply.headers)
    if isinstance(reply.body, FilePart):
        resp.stream, resp.content_length, resp.content_type = reply.body, reply.body.length, media
    elif reply.body is not None:
        resp.data = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
        resp.content_type = media
