"""Pagination: page size, marker, and the link to the next page.

One item more than the page size is read, so that a next link appears only if there is a next page. Filters without an
index are applied here, page by page; the store applies the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from ferroscope.api.http import decoding
from ferroscope.api.http.errors import BadRequestError
from ferroscope.contracts.store import Query


class Identified(Protocol):
    """Anything with a UUID."""

    @property
    def uuid(self) -> str: ...


T = TypeVar("T", bound=Identified)

_CHUNK: Final = 500


def page_size(limit: int | None, maximum: int) -> int:
    """Return the page size: at least 1, at most the configured maximum."""
    if limit is None:
        return maximum
    if limit <= 0:
        raise BadRequestError(f"Invalid limit {limit}: it must be positive. Omit it for {maximum}.")
    return min(limit, maximum)


def marker(given: str | None) -> str | None:
    """Return the UUID after which the page starts; None for the first page."""
    return None if given is None else decoding.uuid("marker", given)


def descending(sort_dir: str) -> bool:
    """Return whether the order is ``desc``."""
    if sort_dir not in ("asc", "desc"):
        raise BadRequestError(f"Invalid sort_dir {sort_dir[:40]!r}: it must be asc or desc.")
    return sort_dir == "desc"


def sort_field(key: str, allowed: dict[str, str]) -> str:
    """Return the stored field that ``key`` sorts by; ``allowed`` maps the API's names to fields."""
    if key not in allowed:
        raise BadRequestError(f"Invalid sort_key {key[:40]!r}: it must be one of {', '.join(sorted(allowed))}.")
    return allowed[key]


def read(
    items: Callable[[Query], Sequence[T]], query: Query, size: int, keep: Callable[[T], bool] | None = None
) -> tuple[list[T], bool]:
    """Return up to ``size`` items for which ``keep`` is true, and whether there are more."""
    return read_some(items, query, size, (lambda batch: batch) if keep is None else lambda batch: filter(keep, batch))


def read_some(
    items: Callable[[Query], Sequence[T]], query: Query, size: int, keep: Callable[[Sequence[T]], Iterable[T]]
) -> tuple[list[T], bool]:
    """Return up to ``size`` of the items that ``keep`` selects from each batch, and whether there are more."""
    wanted = size + 1
    chunk = wanted
    found: list[T] = []
    after = query.marker
    while True:
        batch = items(msgspec.structs.replace(query, marker=after, limit=chunk))
        found += keep(batch)
        if len(found) >= wanted or len(batch) < chunk:
            return found[:size], len(found) > size
        after, chunk = batch[-1].uuid, max(wanted, _CHUNK)


def next_link(url: str, path: str, query: msgspec.Struct, size: int, last: str) -> str:
    """Return the URL of the page after ``last``, with the parameters of this one."""
    given: dict[str, Any] = {}
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is not None and name not in ("limit", "marker"):
            given[name] = ",".join(value) if isinstance(value, list) else value
    return f"{url}/v1/{path}?{urlencode(given | {'limit': size, 'marker': last})}"
