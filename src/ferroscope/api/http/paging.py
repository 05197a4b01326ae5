"""Pagination: page size, marker, and the link to the next page.

A page ends after a number of items or of bytes, because one item may have a megabyte. Items are read, rendered and
encoded in groups of a few megabytes. So the memory of a list depends neither on the number of its items nor on their
size. The link to the next page appears only if there is one. Filters without an index are
applied here, group by group; the store applies the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from ferroscope.api.errors import BadRequestError
from ferroscope.api.http import decoding
from ferroscope.api.http.large_lists import Room
from ferroscope.contracts.store import Query


class Identified(Protocol):
    """Anything with a UUID."""

    @property
    def uuid(self) -> str: ...


T = TypeVar("T", bound=Identified)
T_co = TypeVar("T_co", bound=Identified, covariant=True)


class Listed(Protocol[T_co]):
    """What the store lists; see ``db.nodes.Nodes``."""

    def list(self, query: Query) -> Sequence[T_co]: ...

    def sizes(self, query: Query) -> Sequence[int]: ...


class Page(msgspec.Struct, frozen=True):
    """Encoded items; ``last`` is the UUID of the last one if more follow, else None."""

    items: list[msgspec.Raw]
    last: str | None


_CHUNK_ITEMS: Final = 500
# Items that are read without asking for their sizes first.
_MAX_UNSIZED_ITEMS: Final = 4
# Bytes that are read at once; decoded they may take twenty times as many.
_GROUP_BYTES: Final = 4 * 2**20
# A page ends when this many times its own bytes were read: the caller may have asked for a few small fields only.
_READ_FACTOR: Final = 8

encode: Final = msgspec.json.Encoder(decimal_format="number").encode


def page_size(limit: int | None, maximum: int) -> int:
    """Return the page size: at least 1, at most the configured maximum."""
    if limit is None:
        return maximum
    if limit <= 0:
        raise BadRequestError(f"Invalid limit {limit}: it must be positive. Omit it for {maximum}.")
    return min(limit, maximum)


def marker(text: str | None) -> str | None:
    """Return the UUID after which the page starts; None for the first page."""
    return None if text is None else decoding.uuid("marker", text)


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


def groups(room: Room, listed: Listed[T], query: Query, first: int = _CHUNK_ITEMS) -> Iterator[Sequence[T]]:
    """Yield all items after the marker, in groups of a limited size; ``first``: as many as are probably needed."""
    after, chunk = query.marker, first
    while True:
        asked = msgspec.structs.replace(query, marker=after, limit=chunk)
        sizes = listed.sizes(asked) if chunk > _MAX_UNSIZED_ITEMS else [0] * chunk
        count = 0
        for number, size in _partition(sizes):
            room.take(size)
            batch = listed.list(msgspec.structs.replace(asked, marker=after, limit=number))
            yield batch
            count += len(batch)
            if len(batch) < number:
                return
            after = batch[-1].uuid
        if count < chunk:
            return
        chunk = max(chunk, _CHUNK_ITEMS)


def _partition(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield number and bytes of as many items as make a group; an item that is larger is one by itself."""
    number = total = 0
    for size in sizes:
        if number and total + size > _GROUP_BYTES:
            yield number, total
            number = total = 0
        number, total = number + 1, total + size
    if number:
        yield number, total


def of_uuids(room: Room, listed: Listed[T], uuids: Iterable[str]) -> Iterator[T]:
    """Yield the items with these UUIDs that exist, by UUID."""
    wanted = tuple(dict.fromkeys(uuids))
    if wanted:
        for batch in groups(room, listed, Query(filters={"uuid": wanted}, sort_key="uuid"), len(wanted)):
            yield from batch


def page(
    room: Room,
    listed: Listed[T],
    query: Query,
    size: int,
    show: Callable[[T], Any],
    keep: Callable[[Sequence[T]], Iterable[T]] = lambda batch: batch,
) -> Page:
    """Return the next page of the items that ``keep`` selects from each group, as ``show`` represents them."""
    items: list[msgspec.Raw] = []
    last, used = None, 0
    for batch in groups(room, listed, query, size + 1):
        for item in keep(batch):
            if len(items) == size or (items and room.read > _READ_FACTOR * room.limit):
                return Page(items, last)
            shown = encode(show(item))
            if items and used + len(shown) > room.limit:
                return Page(items, last)
            items.append(msgspec.Raw(shown))
            last, used = item.uuid, used + len(shown)
    return Page(items, None)


def read_some(
    items: Callable[[Query], Sequence[T]], query: Query, size: int, keep: Callable[[Sequence[T]], Iterable[T]]
) -> tuple[list[T], bool]:
    """Return up to ``size`` of the items that ``keep`` selects from each batch, and whether there are more.

    For items that are small, or few.
    """
    wanted = size + 1
    chunk = wanted
    kept: list[T] = []
    after = query.marker
    while True:
        batch = items(msgspec.structs.replace(query, marker=after, limit=chunk))
        kept += keep(batch)
        if len(kept) >= wanted or len(batch) < chunk:
            return kept[:size], len(kept) > size
        after, chunk = batch[-1].uuid, max(wanted, _CHUNK_ITEMS)


def next_link(url: str, path: str, query: msgspec.Struct, size: int, last: str) -> str:
    """Return the URL of the page after ``last``, with the parameters of this one."""
    parameters: dict[str, Any] = {}
    for name in query.__struct_fields__:
        value = getattr(query, name)
        if value is not None and name not in ("limit", "marker"):
            parameters[name] = ",".join(value) if isinstance(value, list) else value
    return f"{url}/v1/{path}?{urlencode(parameters | {'limit': size, 'marker': last})}"
