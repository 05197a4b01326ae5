"""The OpenAPI 3.1 document, generated from the routes table and its types.

The tests run it against the application.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, get_type_hints

import msgspec

from ferroscope import __version__
from ferroscope.api.errors import BareMetalFailure, IntrospectionFailure
from ferroscope.api.http import conditions
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Body, NoQuery, Reply, Route, RouteCall, Surface
from ferroscope.api.http.versions import BARE_METAL, INTROSPECTION, ApiDialect

_REFERENCE: Final = "#/components/schemas/{name}"
_PARAMETER: Final = re.compile(r"{(\w+)}")
_MEANINGS: Final = {
    200: "Success.",
    201: "Created.",
    202: "Accepted; a worker carries it out.",
    206: "The range that was asked for.",
    204: "Success; no content.",
    400: "Invalid request; the message says what is wrong.",
    401: "The call has no credentials, or wrong ones.",
    403: "Forbidden by a policy, by the configuration or by a setting of the node.",
    404: "Not found, or not available in this microversion.",
    405: "The method is not available in this microversion.",
    406: "The request needs another microversion.",
    409: "Not possible in the current state; the message says what is allowed.",
    412: "If-Lease names a lease that the caller does not hold; nothing was changed.",
    413: "The request body is too large.",
    421: "The Host header is not a name of this service.",
    429: "Too many requests, or too many failed ones; try again after Retry-After seconds.",
    503: "The database or Keystone is unavailable; try again after Retry-After seconds.",
}

Document = dict[str, Any]


def serve(routes: Callable[[], Sequence[Route]]) -> Callable[[ApiContext, RouteCall[NoQuery, None]], Reply]:
    """Return the handler that serves the document of ``routes``, a callable because that table contains the handler."""

    @lru_cache(maxsize=1)
    def encode_document() -> bytes:
        return msgspec.json.encode(document(routes()))

    def get_openapi(_context: ApiContext, _call: RouteCall[NoQuery, None]) -> Reply:
        """Return this document."""
        return Reply(200, encode_document())

    return get_openapi


def document(routes: Sequence[Route]) -> Document:
    """Return the OpenAPI document of these routes."""
    schemas = _Schemas(routes)
    paths: dict[str, Document] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ferroscope",
            "version": __version__,
            "description": "The Bare Metal API and the Introspection API, as Ferroscope serves them.",
        },
        "paths": paths,
        "components": {"schemas": schemas.components},
    }


class _Schemas:
    """The schemas of all types in the routes, generated together so that they can reference each other."""

    def __init__(self, routes: Sequence[Route]) -> None:
        named = [
            kind
            for route in routes
            for kind in (route.body, route.conflict, *_options(route.response))
            if kind is not None
        ]
        queries = [hint for route in routes for hint in get_type_hints(route.query, include_extras=True).values()]
        kinds = list(dict.fromkeys([*named, *queries, BareMetalFailure, IntrospectionFailure]))
        generated, self.components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        for name, component in self.components.items():
            component["title"] = name  # generators make one class of what has one title
            if "description" in component:
                # A docstring, whose indentation Python 3.13 no longer keeps.
                component["description"] = inspect.cleandoc(component["description"])
        self._of: dict[Any, Document] = dict(zip(kinds, generated, strict=True))

    def __getitem__(self, kind: Any) -> Document:
        options = [self._of[option] for option in _options(kind)]
        return options[0] if len(options) == 1 else {"anyOf": options}


def _options(kind: Any) -> tuple[Any, ...]:
    return kind if isinstance(kind, tuple) else (kind,)


def _operation(route: Route, schemas: _Schemas) -> Document:
    operation: Document = {
        "operationId": route.operation,
        "summary": route.summary,
        "tags": [str(route.surface)],
        "parameters": _parameters(route, schemas),
        "responses": _responses(route, schemas),
        "x-policy": " or ".join(route.policies),
    }
    if route.since:
        operation["x-microversion"] = f"1.{route.since}"
    if route.body_kind is not Body.NONE:
        operation["requestBody"] = {"required": route.body_required, "content": _json(schemas[route.body])}
    return operation


def _parameters(route: Route, schemas: _Schemas) -> list[Document]:
    parameters: list[Document] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(route.path)
    ]
    hints = get_type_hints(route.query, include_extras=True)
    for name in route.query.__struct_fields__:
        parameters.append({"name": name, "in": "query", "schema": _without_null(schemas[hints[name]])})
    if route.method != "GET":
        parameters.append(_IF_LEASE)
    if route.surface is not Surface.SERVICE:
        parameters.append(_version_header(INTROSPECTION if route.surface is Surface.INTROSPECTION else BARE_METAL))
    return parameters


_IF_LEASE: Final[Document] = {
    "name": conditions.IF_LEASE,
    "in": "header",
    "description": "NAME/EPOCH/TOKEN of a lease: the call changes something only while the caller holds it.",
    "schema": {"type": "string", "pattern": conditions.LEASE_PATTERN},
}


def _version_header(dialect: ApiDialect) -> Document:
    minimum, maximum = dialect.range
    return {
        "name": dialect.header,
        "in": "header",
        "description": f"The microversion, {minimum} to {maximum}.",
        "schema": {"type": "string", "pattern": r"^(1\.[0-9]{1,2}|latest)$", "examples": [maximum]},
    }


def _responses(route: Route, schemas: _Schemas) -> Document:
    answer: Document = {"description": _MEANINGS[route.status]}
    if route.response is not None:
        answer["content"] = {route.media: {"schema": schemas[route.response]}}
    failure = IntrospectionFailure if route.surface is Surface.INTROSPECTION else BareMetalFailure
    errors = {
        str(status): {
            "description": _MEANINGS[status],
            "content": _json(schemas[(status == 409 and route.conflict) or failure]),
        }
        for status in route.errors
    }
    also = {} if route.also is None else {str(route.also): answer | {"description": _MEANINGS[route.also]}}
    return {str(route.status): answer} | also | errors


def _json(schema: Document) -> Document:
    return {"application/json": {"schema": schema}}


def _without_null(schema: Document) -> Document:
    """Remove null from the schema of a query parameter: a parameter may be missing, but it is never null."""
    options = [option for option in schema.get("anyOf", []) if option != {"type": "null"}]
    return options[0] if len(options) == 1 else {name: value for name, value in schema.items() if name != "default"}
