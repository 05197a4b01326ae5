"""What callers may ask of a lease: names, durations, and which offices are the service's own.

The bounds keep a caller from filling the database, and from taking what Ferroscope leads by.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError, ForbiddenError
from ferroscope.api.scalars import shown

MAX_DURATION: Final = 86400
MAX_NAMES: Final = 1000
MAX_NAMES_PER_SOURCE: Final = 250
# A name that nobody has held for so long goes where room is needed, and one for so long in any case.
IDLE: Final = 3600.0
FORGOTTEN: Final = 7 * 86400.0

_MAX_NAME: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*\Z", re.ASCII)
# Clients take these for steps of a path, and ask for another lease.
_STEPS: Final = frozenset({".", ".."})
_OWN_FIELDS: Final = frozenset({"periodic", "pxe", "failover", "ferroscope", "reboot-throttle"})

Duration = Annotated[float, msgspec.Meta(ge=1, le=MAX_DURATION, description="Seconds without renewal.")]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Term = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Holder = Annotated[str, msgspec.Meta(min_length=1, max_length=255, description="Who takes it.")]
Data = Annotated[str, msgspec.Meta(max_length=4096, description="Whatever the holder wants to be known.")]


class Acquisition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/leases/{name}."""

    holder: Holder
    duration: Duration
    data: Data = ""


class Renewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of PUT /v1/leases/{name}; without ``duration`` and ``data`` they stay as they are."""

    epoch: Epoch
    term: Term
    duration: Duration | None = None
    data: Data | None = None


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of DELETE /v1/leases/{name}; the same may be in its query."""

    epoch: Epoch
    term: Term


class ReleaseQuery(msgspec.Struct, frozen=True):
    """Query of DELETE /v1/leases/{name}, for those who cannot send a body with it."""

    epoch: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})] | None = None
    term: str | None = None


class LeaseListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/leases."""

    prefix: str = ""


def name_of(path: dict[str, str]) -> str:
    """Return the lease's name; ``BadRequestError`` where none can be called so."""
    name = path["name"]
    if len(name) > _MAX_NAME or _NAME.match(name) is None or not _STEPS.isdisjoint(name.split("/")):
        raise BadRequestError(
            f"A lease cannot be called {shown(name)}: use 1 to {_MAX_NAME} letters, digits, '-', '.', '_', '~', "
            "with single slashes between them, and no part that is '.' or '..'."
        )
    return name


def foreign(name: str) -> str:
    """Return the name of a lease that callers may take; ``ForbiddenError`` for the service's own."""
    if is_own(name):
        raise ForbiddenError(
            f"{name} is an office of Ferroscope itself: it can be read, not taken, because two would lead then. "
            "Choose another name, such as one that begins with that of your program."
        )
    return name


def is_own(name: str) -> bool:
    """Whether Ferroscope itself leads by this lease."""
    return name.partition("/")[0] in _OWN_FIELDS


def released(query: ReleaseQuery, body: Any) -> Release:
    """Return what a DELETE names, in its body or in its query."""
    if isinstance(body, Release):
        return body
    if query.epoch is None or query.term is None or not 1 <= query.epoch < 2**63:
        raise BadRequestError("To release a lease takes its epoch and its term, both in the query or in the body.")
    return Release(epoch=query.epoch, term=query.term[:64])
