"""Routes that other packages add to the table, with an entry point in the group ``ferroscope.routes``.

Its value is an ``AddedRoutes``. They are served, described and restricted as the service's own. They cannot replace one
of those, nor its policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ferroscope.api.http.route import Route
from ferroscope.config.plugins import PluginError


class AddedRoutes(msgspec.Struct, frozen=True, kw_only=True):
    """``rows`` are those of a package (see ``route.make``). ``after``: the one that they follow in descriptions of the
    API, such as ``GET /v1/search``; "" for the end.
    """

    rows: tuple[Route, ...]
    after: str = ""


def joined(own: Iterable[Route], more: Mapping[str, AddedRoutes]) -> tuple[Route, ...]:
    """Return the whole table; ``PluginError`` if a package adds what exists."""
    table = {_endpoint(route): [route] for route in own}
    existing = set(table)
    last = table[next(reversed(table))]
    for name, one in more.items():
        if taken := existing.intersection(map(_endpoint, one.rows)):
            raise PluginError(f"the routes {name!r} add {min(taken)}, which exists already", "uninstall its package")
        existing.update(map(_endpoint, one.rows))
        table.get(one.after, last).extend(one.rows)
    return tuple(route for routes in table.values() for route in routes)


def _endpoint(route: Route) -> str:
    return f"{route.method} {route.path}"
