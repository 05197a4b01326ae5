"""One page of a list: filters, a stable order, and where the page begins."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ferroscope.adapters.memory.tables import S, copy
from ferroscope.ports.store import Query

Key = Callable[[S], tuple[Any, ...]]


def page(rows: Iterable[S], query: Query, *, marker: S | None, key: Key[S]) -> list[S]:
    """Return copies of the rows that match, in the order of ``key``, from behind ``marker`` on."""
    found = [row for row in rows if matches(row, query)]
    if marker is not None:
        last = key(marker)
        found = [row for row in found if (key(row) < last if query.descending else key(row) > last)]
    found.sort(key=key, reverse=query.descending)
    return [copy(row) for row in found[: query.limit]]


def matches(row: S, query: Query) -> bool:
    """Whether the row satisfies every filter; a tuple means any of its values."""
    return all(_is(getattr(row, field), wanted) for field, wanted in query.filters.items()) and all(
        (value := getattr(row, field)) is not None and value < limit for field, limit in query.before.items()
    )


def ordering(field: str, tie: str) -> Key[Any]:
    """Return the order by ``field``, then by ``tie``; rows without a value come first."""

    def key(row: Any) -> tuple[Any, ...]:
        value = getattr(row, field)
        return (False, getattr(row, tie)) if value is None else (True, value, getattr(row, tie))

    return key


def _is(value: Any, wanted: Any) -> bool:
    return value in wanted if isinstance(wanted, tuple) else bool(value == wanted)
