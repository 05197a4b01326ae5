"""Routes and pages that other packages add, by entry points in ``ferroscope.routes`` and ``ferroscope.pages``.

Routes (``AddedRoutes``) are served, described and restricted like the service's own. They cannot replace an existing
route or its policy. Pages (``AddPages``) are not routes of the table: they are not described, and decide themselves who
may see them. They get all they show by calling routes (``in_process``), whose policies then decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import falcon
import msgspec

from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Route
from ferroscope_client.installed import PluginError


class AddPages(Protocol):
    def __call__(self, app: falcon.App[Any, Any], context: ApiContext, /) -> None:
        """Add the pages to the application, or none if they are disabled; import what they need only then."""


class AddedRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` are those of a package (see ``route.make``). ``after``: the one that they follow in descriptions of the
    API, such as ``GET /v1/search``; "" for the end.
    """

    rows: tuple[Route, ...]
    after: str = ""


def join_routes(own: Iterable[Route], more: Mapping[str, AddedRoutes]) -> tuple[Route, ...]:
    """Return the whole table; ``PluginError`` if a package adds what exists."""
    table = {_endpoint(route): [route] for route in own}
    existing = set(table)
    last = table[next(reversed(table))]
    for name, addition in more.items():
        if taken := existing.intersection(map(_endpoint, addition.rows)):
            raise PluginError(f"the routes {name!r} add {min(taken)}, which exists already", "uninstall its package")
        existing.update(map(_endpoint, addition.rows))
        table.get(addition.after, last).extend(addition.rows)
    return tuple(route for routes in table.values() for route in routes)


def _endpoint(route: Route) -> str:
    return f"{route.method} {route.path}"
