"""The WSGI application: both APIs and the service's own endpoints, made from the routes table.

Any path works on either listener; only ``/``, ``/v1`` and unknown paths tell them apart.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import falcon

from ferroscope.api.http import errors
from ferroscope.api.http.responder import Responder, responder, send_failure
from ferroscope.api.http.route import ApiContext
from ferroscope.api.routes import ROUTES


def create_app(context: ApiContext) -> falcon.App[falcon.Request, falcon.Response]:
    """Return the application; it is stateless, and safe for any number of threads."""
    app = falcon.App(middleware=[_Named()])
    app.req_options.strip_url_path_trailing_slash = True
    # For empty answers: ironicclient complains about an empty "JSON" document.
    app.resp_options.default_media_type = falcon.MEDIA_TEXT
    by_path: dict[str, dict[str, Responder]] = defaultdict(dict)
    for route in ROUTES:
        by_path[route.template][f"on_{route.method.lower()}"] = responder(context, route)
    for path, responders in by_path.items():
        if "on_get" in responders:
            responders["on_head"] = responders["on_get"]
        app.add_route(path, type("Resource", (), {name: staticmethod(on) for name, on in responders.items()})())
    _handle_errors(app, context)
    return app


class _Named:
    """A DELETE names what it deletes: one whose path ends with a slash, since an identifier is empty, is not found.

    Other calls may end with a slash, as some clients' do; no known client sends a DELETE so.
    """

    def process_request(self, req: falcon.Request, _resp: falcon.Response) -> None:
        if req.method == "DELETE" and req.env["PATH_INFO"].endswith("/"):
            raise errors.MissingError(
                f"DELETE of {req.path[:200]}/: a path that ends with a slash names nothing that could be deleted."
            )


def _handle_errors(app: falcon.App[Any, Any], context: ApiContext) -> None:
    def on_http_error(req: falcon.Request, resp: falcon.Response, exc: falcon.HTTPError, _params: Any) -> None:
        send_failure(context, req, resp, _translate(req, exc))

    def on_fault(req: falcon.Request, resp: falcon.Response, exc: Exception, _params: Any) -> None:
        send_failure(context, req, resp, exc)

    app.add_error_handler(Exception, on_fault)
    app.add_error_handler(falcon.HTTPError, on_http_error)


def _translate(req: falcon.Request, exc: falcon.HTTPError) -> errors.ApiError:
    headers = {key: str(value) for key, value in dict(exc.headers or {}).items()}
    answer = errors.ApiError(_message(req, exc, headers), headers)
    answer.status = exc.status_code
    return answer


def _message(req: falcon.Request, exc: falcon.HTTPError, headers: dict[str, str]) -> str:
    if isinstance(exc, falcon.HTTPRouteNotFound):
        return f"There is nothing at {req.path[:200]}. GET /openapi.json lists what there is."
    if isinstance(exc, falcon.HTTPMethodNotAllowed):
        return f"{req.method} is not allowed for {req.path[:200]}; allowed: {headers.get('Allow', 'nothing')}."
    return f"{exc.title or exc.status}. {exc.description or ''}".strip()
