"""From a WSGI request to a handler and back: versions, limits, decoding, errors.

This is the only place where an exception becomes a response, so that neither bad input nor an internal error ever
reveals more than a generic message. It is independent of what a route does.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any, Final

import falcon
import msgspec
import structlog

from ferroscope.api import errors
from ferroscope.api.auth import access
from ferroscope.api.auth.identity import ANYBODY, Identity
from ferroscope.api.http import conditions, decoding, middleware, versions
from ferroscope.api.http.audit import IDENTITY, CallAudit, event_of
from ferroscope.api.http.authorization import admit_by_body, admit_caller, admits_anybody
from ferroscope.api.http.context import ApiContext, Data
from ferroscope.api.http.middleware import API, SAFE, reject_cross_site
from ferroscope.api.http.middleware import of as request_id
from ferroscope.api.http.route import Body, Call, NoQuery, Reply, Route, Surface
from ferroscope.api.http.served_files import ServedFile, reply_with
from ferroscope.api.http.versions import BARE_METAL, INTROSPECTION, Dialect, Version
from ferroscope.config.options import Settings
from ferroscope.contracts import telemetry
from ferroscope.contracts.calls import Receipt, RepeatedCallError
from ferroscope.contracts.errors import OutcomeUnknownError, StoreError
from ferroscope.contracts.store import Query
from ferroscope.contracts.telemetry import Span, TracedCall
from ferroscope.core import values
from ferroscope.core.audit import LOGIN, AuditEvent
from ferroscope.http_server.agreed import HEAD_ONLY, retries_after
from ferroscope.http_server.file_part import FilePart
from ferroscope.http_server.sources import group


@contextmanager
def record_trace(
    context: ApiContext, route: Route, environ: Mapping[str, Any], identity: Identity
) -> Iterator[TracedCall | None]:
    """Record the call when it has succeeded, if it concerns an inspection; None if traces are disabled."""
    tracer = context.process.meter.tracer
    if tracer is None:
        yield None
        return
    traceparent = "" if identity.method == "none" else telemetry.valid_traceparent(environ.get("HTTP_TRACEPARENT", ""))
    call, began = TracedCall(traceparent), context.process.clock.time()
    yield call
    if (inspection_uuid := call.inspection) is not None:
        tracer.record(
            Span(
                name=f"{route.method} {route.path}",
                trace=telemetry.trace_of(inspection_uuid)[0],
                id=secrets.token_hex(8),
                parent=telemetry.span_of(inspection_uuid),
                began=began,
                ended=context.process.clock.time(),
                kind="server",
                attributes={"http.request.method": route.method, "http.route": route.path},
            )
        )


Responder = Callable[..., None]

_access = structlog.get_logger("ferroscope.access")

_encode = msgspec.json.Encoder(decimal_format="number").encode

# Instead of a context manager that would do nothing.
_NOTHING: Final = nullcontext()


def responder(context: ApiContext, route: Route) -> Responder:
    """Return the Falcon responder that serves ``route``."""

    endpoint = f"{route.method} {route.path}"
    changes_nodes = route.changes_nodes
    open_to_all = admits_anybody(context.access)
    # Ramdisks have limits of their own.
    counted = context.access.admission.limited and not (route.ramdisk or route.policy in ("public_api", access.METRICS))
    # A path with a key is not logged.
    logged = route.path if "{key}" in route.path else None

    def event(req: falcon.Request, path: dict[str, str], source: str) -> AuditEvent:
        return event_of(
            req.env,
            request_id=request_id(req.env),
            source=source,
            policy=route.policy,
            call=endpoint,
            target=next(iter(path.values()), ""),
            status=route.status,
            claims="" if IDENTITY in req.env else context.access.authentication.claimed_name(req.env),
        )

    def respond(req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        introspection = by_introspection_listener(context.settings, req)
        dialect = _dialect(route, introspection)
        began, source = perf_counter(), context.access.callers.source(req.env)
        version: Version | None = None
        audit = CallAudit(context.access.audit, endpoint, ramdisk=route.ramdisk)
        receipt: Receipt | None = None
        try:
            version = versions.requested_version(
                req.env.get(versions.STANDARD), req.env.get(dialect.environ_key), dialect
            )
            path = _with_suffix(context.data, req, path)
            _check(context, route, req, version)
            identity = ANYBODY if open_to_all else _authorize(context, route, req, path, version)
            if changes_nodes:
                context.services.attached.check_change(endpoint)
            if HEAD_ONLY in req.env:
                resp.status = 100
                return
            with context.access.admission.admit(identity.principal or group(source)) if counted else _NOTHING:
                call = _call(context, route, req, path, version, introspection, identity, source)
                req.env.setdefault(IDENTITY, identity)
                if conditions.KEY in req.env:
                    receipt = conditions.receipt_of(context.data, route, req.env, identity, call.raw)
                lease = conditions.lease_of(req.env) if conditions.LEASE in req.env else None
                with (
                    _NOTHING if lease is None else conditions.leading(context.data, lease),
                    record_trace(context, route, req.env, identity) as traced,
                ):
                    demands = audit.begin(lambda: event(req, path, source), lease, receipt, traced)
                    reply = route.handler(context.on_behalf_of(demands), call)
                    if isinstance(reply.body, ServedFile):
                        reply = reply_with(reply.body, req.env, call.source, context)
        except falcon.HTTPError:
            raise  # Falcon's own errors, such as invalid headers, are handled by the application
        except RepeatedCallError as exc:
            reply = replay_reply(context, route, req, str(exc), dialect)
        except Exception as exc:  # noqa: BLE001  # the boundary: an internal error becomes a generic response
            if isinstance(exc, OutcomeUnknownError) and route.ramdisk:
                exc = errors.UnavailableError(errors.REPEAT_IT, {"Retry-After": "1"})
            if isinstance(exc, errors.TooLargeError) and route.refused is not None:
                route.refused(context, decoding.beginning(req), source, exc)
            reply = failure(context, req, exc, dialect)
        if reply.status < 300 and route.method not in SAFE:
            context.data.writes.failure = None
        audit.write_event(reply.status, lambda: event(req, path, source))
        if receipt is not None:
            conditions.keep(context.data, route, receipt, reply)
        _send(resp, reply, route.media if reply.status < 300 else falcon.MEDIA_JSON)
        resp.set_headers(versions.headers(dialect, version))
        record(context, req, resp, req.method, route.path, perf_counter() - began, path=logged)

    return respond


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
            source=context.access.callers.source(req.env),
            method=req.method,
            path=req.path if path is None else path,
            status=status,
            bytes=len(resp.data or b""),
            ms=round(seconds * 1000, 1),
        )


def by_introspection_listener(settings: Settings, req: falcon.Request) -> bool:
    """Return whether the call arrived on the Introspection API's port, or where a web server serves that API."""
    if api := req.env.get(API):
        return bool(api == "introspection")
    port = settings.api.introspection_port
    return port != 0 and req.env.get("SERVER_PORT") == str(port)


def replay_reply(context: ApiContext, route: Route, req: falcon.Request, ident: str, dialect: Dialect) -> Reply:
    """Return the response to a call that was made before."""
    try:
        return conditions.replay(context.data, route, ident)
    except Exception as exc:  # noqa: BLE001  # the boundary, as in ``responder``
        return failure(context, req, exc, dialect)


def failure(context: ApiContext, req: falcon.Request, exc: Exception, dialect: Dialect) -> Reply:
    """Return the response for an exception; an internal error is logged in full and reported by its request ID."""
    api_error = errors.translate(exc)
    if api_error is None:
        context.process.log.error("request failed", method=req.method, path=req.path, exc_info=exc)
        api_error = errors.ApiError(errors.INTERNAL_MESSAGE.format(request_id=request_id(req.env)))
    if isinstance(exc, StoreError):
        if req.method not in SAFE:
            context.data.writes.failed_at = context.process.clock.monotonic()
            context.data.writes.failure = exc.failure
        _log_outage(context, req, exc)
    body = errors.introspection_body if dialect is INTROSPECTION else errors.bare_metal_body
    return Reply(api_error.status, body(api_error.status, api_error.message), _compatible(req, api_error.headers))


def _log_outage(context: ApiContext, req: falcon.Request, exc: StoreError) -> None:
    left_out = context.data.outages.admit(context.process.clock.monotonic())
    if left_out is not None:
        context.process.log.warning(
            "request not answered", method=req.method, path=req.path, why=str(exc), left_out=left_out
        )


def _compatible(req: falcon.Request, headers: dict[str, str]) -> dict[str, str]:
    """Return the headers of an error without those that this client is known to break on."""
    if retries_after(req.user_agent or ""):
        return headers
    return {name: value for name, value in headers.items() if name != "Retry-After"}


def send_failure(context: ApiContext, req: falcon.Request, resp: falcon.Response, exc: Exception) -> None:
    """Send the response for an error outside any route: an unknown path, a method that is not allowed."""
    introspection = by_introspection_listener(context.settings, req) or req.path.startswith("/v1/introspection")
    dialect = INTROSPECTION if introspection else BARE_METAL
    reply = failure(context, req, exc, dialect)
    _send(resp, reply)
    resp.set_headers(versions.headers(dialect, None))
    record(context, req, resp, req.method if req.method in falcon.HTTP_METHODS else "other", "none", 0.0)


def _dialect(route: Route, introspection: bool) -> Dialect:
    if route.surface is Surface.INTROSPECTION or (route.surface is Surface.SHARED and introspection):
        return INTROSPECTION
    return BARE_METAL


def _call(
    context: ApiContext,
    route: Route,
    req: falcon.Request,
    path: dict[str, str],
    version: Version,
    introspection: bool,
    identity: Identity,
    source: str,
) -> Call[Any, Any]:
    raw = b"" if route.body_kind is Body.NONE else decoding.read_body(context.settings, route, req)
    if route.late:
        admit_by_body(context, route, identity, raw)
    return Call(
        path=path,
        query=decoding.decode_query(req.params, route.query) if req.query_string else _empty(route),
        body=decoding.body_of(route, raw),
        minor=version[1],
        url=_url(context.settings, req, route, introspection),
        raw=raw,
        introspection=introspection,
        source=source,
        identity=identity,
        request_id=request_id(req.env),
        forwarded="HTTP_FERROSCOPE_FORWARDED" in req.env,
    )


def _check(context: ApiContext, route: Route, req: falcon.Request, version: Version) -> None:
    """Refuse a call that nobody may make like this."""
    reject_cross_site(req)
    if route.ramdisk and not context.settings.api.enable_ramdisk_endpoints:
        raise errors.ForbiddenError("The ramdisk endpoints are disabled ([api] enable_ramdisk_endpoints).")
    if version[1] < route.since:
        raise route.unsupported(
            f"{req.path} requires API version 1.{route.since} or newer; the request uses {versions.text(version)}."
        )


def _authorize(
    context: ApiContext, route: Route, req: falcon.Request, path: dict[str, str], version: Version
) -> Identity:
    """Return the identity of a caller who may make this call; decided without reading the body."""
    named = route.surface is Surface.INTROSPECTION or version[1] >= decoding.NAMES_SINCE
    return admit_caller(context, route, path, lambda: _identify(context, req), named=named)


def _identify(context: ApiContext, req: falcon.Request) -> Identity:
    """Return the identity of the caller, and keep it for the audit of a refused call."""
    identity: Identity = context.access.authentication.identify(req.env, lambda user: _record_login(context, req, user))
    req.env[IDENTITY] = identity
    return identity


def _record_login(context: ApiContext, req: falcon.Request, identity: Identity) -> None:
    """Record that a password was right that was not used lately."""
    if context.access.audit is not None:
        event = event_of(
            {IDENTITY: identity},
            request_id=request_id(req.env),
            source=context.access.callers.source(req.env),
            policy="",
            call=LOGIN,
            target="",
            status=200,
        )
        context.access.audit.logged_in(event)


def _with_suffix(data: Data, req: falcon.Request, path: dict[str, str]) -> dict[str, str]:
    """Return the path's parameters; a node whose name ends in ``.json`` is meant if there is none without that."""
    name = path.get("node", "")
    if middleware.REMOVED not in req.env or not req.path.endswith(f"/nodes/{name}") or values.is_uuid(name):
        return path
    with_suffix = name + middleware.SUFFIX
    nodes = data.store.read(lambda tx: tx.nodes.list(Query(filters={"name": (name, with_suffix)})))
    return path | {"node": with_suffix} if [node.name for node in nodes] == [with_suffix] else path


def _empty(route: Route) -> msgspec.Struct:
    return _NO_QUERY if route.query is NoQuery else route.query()


_NO_QUERY = NoQuery()


def _url(settings: Settings, req: falcon.Request, route: Route, introspection: bool) -> str:
    public = settings.api.public_url
    if public and not introspection and route.surface is not Surface.INTROSPECTION:
        return public.rstrip("/")
    return req.prefix


def _send(resp: falcon.Response, reply: Reply, media: str = falcon.MEDIA_JSON) -> None:
    resp.status = reply.status
    if reply.headers:
        resp.set_headers(reply.headers)
    if isinstance(reply.body, FilePart):
        resp.stream, resp.content_length, resp.content_type = reply.body, reply.body.length, media
    elif reply.body is not None:
        resp.data = reply.body if isinstance(reply.body, bytes) else _encode(reply.body)
        resp.content_type = media
