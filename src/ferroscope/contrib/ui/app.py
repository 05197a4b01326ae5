"""The pages and their routes: from a browser's request to HTML, and from an error to a page that explains it.

Every response forbids inline code and embedding, and is not kept by caches. A page has an ETag that follows from its
data, so a browser that polls every few seconds costs nothing while nothing changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from html import escape
from time import perf_counter
from typing import Any, Final
from urllib.parse import quote

import falcon
import msgspec

from ferroscope import __version__
from ferroscope.api import errors
from ferroscope.api.errors import ApiError, BadRequestError, MissingError, UnauthorizedError
from ferroscope.api.http.arrivals import REQUEST_ID
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.dispatch import record
from ferroscope.api.http.in_process import Caller
from ferroscope.contracts.errors import StoreError, StoreUnavailableError
from ferroscope.contrib.ui import (
    bmc_form,
    enroll,
    fleet,
    form,
    inbox,
    kept,
    login,
    machine,
    machine_actions,
    machines,
    render,
    rules,
    saved_searches,
    service,
    session,
    view,
    wiring,
)
from ferroscope.contrib.ui.audit import LoginAudit
from ferroscope.contrib.ui.page import FileDownload, HtmlPage, Redirect, Visit
from ferroscope.contrib.ui.session import Seal, Visitor
from ferroscope.core.audit import LOGIN, LOGOUT
from ferroscope.http_server.agreed import HEAD_ONLY, SOURCE
from ferroscope_client.core.values import limit_key

Outcome = HtmlPage | Redirect | FileDownload
Handler = Callable[[Visit], Outcome]

_YEAR: Final = "public, max-age=31536000, immutable"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
# The return address in a form may have any character; a header may not.
_IN_A_URL: Final = "%/?#[]@!$&'()*+,;=:~"

PAGES: Final[dict[str, dict[str, Handler]]] = {
    "/ui": {"GET": fleet.show},
    "/ui/machines": {"GET": machines.show},
    "/ui/machines/act": {"POST": machine_actions.act},
    "/ui/machines/saved": {"POST": saved_searches.act},
    "/ui/machines/{node}": {"GET": machine.show},
    "/ui/machines/{node}/bmc": {"POST": bmc_form.act},
    "/ui/machines/{node}/notes": {"POST": machine_actions.note},
    "/ui/inbox": {"GET": inbox.show, "POST": inbox.act},
    "/ui/enroll": {"GET": enroll.show, "POST": enroll.act},
    "/ui/rules": {"GET": rules.show},
    "/ui/rules/{rule}": {"GET": rules.edit, "POST": rules.act},
    "/ui/wiring": {"GET": wiring.show},
    "/ui/service": {"GET": service.show},
}

# Path, title, and the policies: a caller needs one of them to see the page; none: all callers may.
NAVIGATION: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("/ui", "Fleet", ()),
    ("/ui/machines", "Machines", ()),
    ("/ui/inbox", "Inbox", (inbox.LIST,)),
    ("/ui/enroll", "Enroll", enroll.POLICIES),
    ("/ui/rules", "Rules", (rules.SEE,)),
    ("/ui/wiring", "Wiring", ()),
    ("/ui/service", "Service", (fleet.STATUS,)),
)
# The script keeps the theme in a cookie, so that a page has it from the start.
_THEMES: Final = ("light", "dark")
# Seconds for which the difference between this host's clock and the database's is kept.
_CLOCKS_SECONDS: Final = 30.0
# Pages that accept files from users who are logged in.
_FILES: Final = ("/ui/enroll",)


def add_pages(app: falcon.App[Any, Any], context: ApiContext) -> None:
    """Add the pages to the application of the API."""
    rendered = render.Rendered()
    for path, handlers in PAGES.items():
        responders = {
            f"on_{method.lower()}": _responder(context, path, handler, rendered) for method, handler in handlers.items()
        }
        if "GET" in handlers:
            responders["on_head"] = responders["on_get"]
        _add(app, path, responders)
    entry = _responder(context, "/ui/login", None, rendered)
    _add(app, "/ui/login", {"on_get": entry, "on_head": entry, "on_post": entry})
    _add(app, "/ui/logout", {"on_post": _responder(context, "/ui/logout", None, rendered)})
    static = _static(context)
    _add(app, "/ui/static/{name}", {"on_get": static, "on_head": static})
    app.add_sink(_responder(context, "/ui/*", _nothing, rendered), r"/ui/")


def _add(app: falcon.App[Any, Any], path: str, responders: dict[str, Callable[..., None]]) -> None:
    app.add_route(path, type("Page", (), {name: staticmethod(on) for name, on in responders.items()})())


def _nothing(_visit: Visit) -> Outcome:
    raise MissingError("Page not found.")


def _static(context: ApiContext) -> Callable[..., None]:
    def respond(req: falcon.Request, resp: falcon.Response, name: str) -> None:
        resp.set_headers(_HEADERS)
        file = render.static_file(name)
        if file is None:
            resp.status, resp.text = 404, "File not found.\n"
        else:
            body, digest = file
            resp.set_headers(
                {"ETag": f'"{digest}"', "Cache-Control": _YEAR if req.query_string == digest else "no-cache"}
            )
            if _is_known(req, f'"{digest}"'):
                resp.status = 304
            else:
                resp.content_type = _MEDIA[name.rpartition(".")[2]]
                resp.data = body
        record(context, req, resp, req.method, "/ui/static/{name}", 0.0)

    return respond


_MEDIA: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}


def _responder(
    context: ApiContext, template: str, handler: Handler | None, rendered: render.Rendered
) -> Callable[..., None]:
    """Return what serves one page; without ``handler``, the login or the logout."""

    def respond(req: falcon.Request, resp: falcon.Response, **path: str) -> None:
        began = perf_counter()
        resp.set_headers(_HEADERS)
        visitor, sent = Visitor(secret="", is_new=True), form.Given()
        try:
            if HEAD_ONLY in req.env:
                form.check_size(req, form.MAX_BYTES_WITH_FILE if template in _FILES else form.MAX_BYTES)
                resp.status = 100
                return
            visitor = session.visitor(context, req)
            most = form.MAX_BYTES_WITH_FILE if template in _FILES and visitor.identity is not None else form.MAX_BYTES
            sent = form.read(context, req, visitor, most) if req.method == "POST" else sent
            if handler is None:
                outcome, visitor = _entrance(context, req, visitor, sent.fields)
            elif sent.fields and visitor.identity is None:
                outcome = _too_late(context, req, visitor, sent.fields)
            elif sent.late:
                outcome = kept.page(context, visitor.secret, kept.Kept(req.path, sent.fields), late=True)
            else:
                form_fields = kept.of(context, visitor.secret, sent.fields, req.path)
                outcome = _outcome(context, req, visitor, handler, path, form_fields)
        except Exception as exc:  # noqa: BLE001  # the boundary, as in the responder of the API
            outcome = _failure(context, req, visitor, exc, form.back(sent.fields))
        _send(context, req, resp, visitor, outcome, rendered)
        method = req.method if req.method in falcon.HTTP_METHODS else "other"
        record(context, req, resp, method, template, perf_counter() - began)

    return respond


def _outcome(
    context: ApiContext,
    req: falcon.Request,
    visitor: Visitor,
    handler: Handler,
    path: dict[str, str],
    form_fields: dict[str, list[str]],
) -> Outcome:
    if visitor.identity is None:
        raise UnauthorizedError("Log in first.")
    source = req.env[SOURCE]
    url = context.settings.api.public_url.rstrip("/") or req.prefix
    caller = Caller(identity=visitor.identity, url=url, source=source, request_id=req.env[REQUEST_ID])
    visit = Visit(
        context=context,
        caller=caller,
        path=path,
        query=form.fields(req.query_string),
        form=form_fields,
        seal=Seal(visitor.secret, context.process.clock.time),
        again="HTTP_IF_NONE_MATCH" in req.env,
        view=(req.get_cookie_values(view.NAME) or [""])[0] if handler is machines.show else "",
    )
    with context.access.admission.admit(visitor.identity.principal or limit_key(source)):
        return handler(visit)


def _entrance(
    context: ApiContext, req: falcon.Request, visitor: Visitor, form_fields: dict[str, list[str]]
) -> tuple[Outcome, Visitor]:
    """Log in or out, or show the form for it; return the outcome and who the visitor is afterwards."""
    if req.path == "/ui/logout":
        if visitor.session and visitor.identity is not None:
            leaving = LoginAudit(context, req, LOGOUT)
            session.end(leaving.begin(visitor.identity), visitor.secret)
            leaving.end(303)
        return Redirect("/ui/login"), Visitor(secret=session.new_secret(), is_new=True)
    target = login.target(form.fields(req.query_string))
    sealed = (form_fields.get(kept.FIELD) or [""])[0]
    if req.method != "POST":
        return (login.page(context, target) if visitor.identity is None else Redirect(target)), visitor
    entering = LoginAudit(context, req, LOGIN, login.claims(context, form_fields))
    try:
        login_data = login.given_credentials(context, req.env, form_fields)
        entered = session.log_in(context, req.env, login_data, entering)
    except ApiError as exc:
        entering.end(exc.status)
        failed = exc
    else:
        entering.end(303)
        late = kept.opened(context, visitor.secret, form_fields)
        return Redirect(target) if late is None else kept.page(context, entered.secret, late), entered
    return login.page(context, target, failed=failed, user=(form_fields.get("user") or [""])[0], kept=sealed), visitor


def _too_late(context: ApiContext, req: falcon.Request, visitor: Visitor, form_fields: dict[str, list[str]]) -> Outcome:
    """Ask for a login first; the form is kept, unless it is too long."""
    sealed = kept.close(context, visitor.secret, kept.Kept(req.path, form_fields))
    lost = "" if sealed else " What you entered is too long to be kept: your browser has it if you go back."
    failed = UnauthorizedError(f"Your session has ended.{lost}")
    return login.page(context, "/ui", failed=failed, kept=sealed)


def _failure(context: ApiContext, req: falcon.Request, visitor: Visitor, exc: Exception, back: str) -> Outcome:
    if isinstance(exc, UnauthorizedError):
        target = req.relative_uri if req.method in ("GET", "HEAD") else "/ui"
        return Redirect(f"/ui/login?next={quote(target, safe='')}")
    if isinstance(exc, falcon.HTTPError):
        api_error: ApiError | None = BadRequestError(str(exc.title or exc.status))
    else:
        api_error = errors.translate(exc)
    if api_error is None:
        context.process.log.error("page failed", method=req.method, path=req.path, exc_info=exc)
        api_error = ApiError(errors.INTERNAL_MESSAGE.format(request_id=req.env[REQUEST_ID]))
    if isinstance(exc, StoreError):
        left_out = context.data.outages.admit(context.process.clock.monotonic())
        if left_out is not None:
            context.process.log.warning("page not shown", path=req.path, why=str(exc), left_out=left_out)
    data = {
        "status": api_error.status,
        "message": api_error.message,
        "known": visitor.identity is not None,
        "back": back,
    }
    return HtmlPage(
        template="error.html", title=_TITLES.get(api_error.status, "Error"), data=data, status=api_error.status
    )


_TITLES: Final = {
    400: "Invalid request", 403: "Not allowed", 404: "Not found", 409: "Not possible now", 413: "Too large",
    421: "Wrong host name", 429: "Too many requests", 500: "Internal error", 503: "Temporarily unavailable",
}  # fmt: skip


def _send(
    context: ApiContext,
    req: falcon.Request,
    resp: falcon.Response,
    visitor: Visitor,
    outcome: Outcome,
    rendered: render.Rendered,
) -> None:
    resp.set_header("Cache-Control", "no-store")
    resp.set_header("Vary", "Cookie")
    if visitor.is_new and visitor.secret:
        session.set_cookie(context, req, resp, visitor.secret)
    if isinstance(outcome, Redirect):
        if outcome.view:
            session.remember(context, req, resp, view.NAME, outcome.view, view.COOKIE_SECONDS)
        resp.status = 303
        resp.set_header("Location", quote(outcome.location, safe=_IN_A_URL))
        return
    if isinstance(outcome, FileDownload):
        resp.content_type, resp.data = outcome.media, outcome.body
        resp.downloadable_as = outcome.name
        return
    templates = render.environment()
    frame = _frame(context, req, visitor)
    same = hashlib.sha256(
        msgspec.json.encode((__version__, outcome.template, outcome.title, outcome.data, outcome.shared.digest, frame))
    )
    now = _now(context)
    resp.set_header("Ferroscope-Now", str(int(now * 1000)))
    token = visitor.csrf if visitor.secret else ""
    theirs = msgspec.json.encode((token, str(visitor.identity), outcome.own))
    tag = hashlib.sha256(same.digest() + theirs).hexdigest()[:32]
    resp.status = outcome.status
    if outcome.status == 200:
        resp.set_header("ETag", f'"{tag}"')
        if req.method in ("GET", "HEAD") and _is_known(req, f'"{tag}"'):
            resp.status = 304
            return
    resp.content_type = "text/html; charset=utf-8"

    def page(template: str, data: dict[str, Any]) -> bytes:
        template_source = templates.get_template(template)
        return str(template_source.render(**data, title=outcome.title, frame=frame, now=now)).encode("utf-8", "replace")

    def shared() -> bytes:
        return page(outcome.template, outcome.shared.data | outcome.data)

    is_look = outcome.status == 200 and req.method == "GET"
    text = rendered.get(same.hexdigest(), context.process.clock.monotonic(), shared) if is_look else shared()
    text = text.replace(render.TAG.encode(), tag.encode()).replace(render.TOKEN.encode(), token.encode())
    text = text.replace(render.USER.encode(), escape(render.harmless(visitor.identity, 60)).encode("utf-8", "replace"))
    if outcome.own is not None:
        text = text.replace(render.OWN.encode(), page(outcome.own.template, outcome.own.data))
    resp.data = text


def _now(context: ApiContext) -> float:
    """Return the time of the database, to which all times of machines belong: this host's clock may be wrong."""

    def ahead() -> float:
        return context.process.clock.time() - context.data.store.read(lambda tx: tx.now)

    try:
        return context.process.clock.time() - context.data.recent.get("ahead", _CLOCKS_SECONDS, ahead)
    except StoreUnavailableError:
        return context.process.clock.time()


def _is_known(req: falcon.Request, tag: str) -> bool:
    """Whether the browser has this version. Source: RFC 9110, section 13.1.2."""
    tags = [etag.strip().removeprefix("W/") for etag in req.env.get("HTTP_IF_NONE_MATCH", "").split(",")]
    return tag in tags or "*" in tags


def _frame(context: ApiContext, req: falcon.Request, visitor: Visitor) -> dict[str, Any]:
    """Return what surrounds every page."""
    identity, theme = visitor.identity, (req.get_cookie_values("ferroscope-theme") or [""])[0]
    pages = [
        {"path": path, "title": title, "here": req.path == path or (path != "/ui" and req.path.startswith(path))}
        for path, title, policies in NAVIGATION
        if identity is not None
        and (not policies or any(context.access.policy.allows(rule, identity) for rule in policies))
    ]
    return {
        "pages": pages,
        "csrf": render.TOKEN,
        "tag": render.TAG,
        "own": render.OWN,
        "user": "" if identity is None or identity.method == "none" else render.USER,
        "session": visitor.session,
        "theme": theme if theme in _THEMES else "",
        "version": __version__,
    }
