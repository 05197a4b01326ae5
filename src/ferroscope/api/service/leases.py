"""Leases for everybody: whoever can speak HTTP can let one of many lead, on no more than this.

It knows nothing of what is led. The token is told to nobody but the holder, so that only the holder
renews and releases. The epoch grows with each new holder: hand it to whatever you write to.
Source: the proposal for leases of highly available components in Kubernetes.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api.http import errors, rate_limit
from ferroscope.api.http.decoding import shown
from ferroscope.api.http.errors import BadRequestError, ForbiddenError
from ferroscope.api.http.route import ApiContext, Call, NoQuery, Reply
from ferroscope.api.http.schemas import iso_exact
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError
from ferroscope.contracts.store import Transaction
from ferroscope.core.model import Lease

# What callers may ask of a lease: names, durations, and which leases are the service's own.
#
# The bounds keep a caller from filling the database, and from taking what Ferroscope leads by.

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
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
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
    token: Token
    duration: Duration | None = None
    data: Data | None = None


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of DELETE /v1/leases/{name}; the same may be in its query."""

    epoch: Epoch
    token: Token


class ReleaseQuery(msgspec.Struct, frozen=True):
    """Query of DELETE /v1/leases/{name}, for those who cannot send a body with it."""

    epoch: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})] | None = None
    token: str | None = None


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
            f"{name} is a lease of Ferroscope itself: it can be read, not taken, because two would lead then. "
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
    if query.epoch is None or query.token is None or not 1 <= query.epoch < 2**63:
        raise BadRequestError("To release a lease takes its epoch and its token, both in the query or in the body.")
    return Release(epoch=query.epoch, token=query.token[:64])


# Names that go at once, and our own among those that are looked at, which never go.
_FORGET: Final = 100
_OWN: Final = 32


class LeaseView(msgspec.Struct, frozen=True):
    """A lease; ``holder`` null: free. ``duration`` and ``remaining`` are in seconds.

    ``token`` is there for its holder only: in the answer to an acquisition or a renewal.
    """

    name: str
    holder: str | None
    epoch: int
    duration: float
    remaining: float
    acquired_at: str | None
    renewed_at: str | None
    expires_at: str | None
    data: str
    own: bool
    token: str | UnsetType = UNSET


class LeaseList(msgspec.Struct, frozen=True):
    """Leases by name."""

    leases: list[LeaseView]


class LeaseConflict(msgspec.Struct, frozen=True):
    """A Bare Metal API error that also shows the lease as it is."""

    error_message: str
    lease: LeaseView | None


def list_leases(context: ApiContext, call: Call[LeaseListQuery, None]) -> Reply:
    """List the leases, free ones too, by name."""
    prefix = call.query.prefix
    found = context.store.read(lambda tx: tx.leases.list(prefix))
    # SQLite compares a prefix without regard to case.
    return Reply(200, LeaseList(leases=[view(lease) for lease in found if lease.name.startswith(prefix)]))


def get_lease(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Show who holds a lease, in which epoch and for how long."""
    name = name_of(call.path)
    return Reply(200, view(context.store.read(lambda tx: _stored(tx, name))))


def acquire_lease(context: ApiContext, call: Call[NoQuery, Acquisition]) -> Reply:
    """Take a lease that is free or has expired; 409 with its holder where somebody has it."""
    name, asked = foreign(name_of(call.path)), call.body

    source = rate_limit.group(call.source)

    def work(tx: Transaction) -> Lease:
        new = not any(lease.name == name for lease in tx.leases.list(name, brief=True))
        lease = tx.leases.acquire(name, asked.holder, asked.duration, data=asked.data, source=source)
        if new:
            _bound(tx, source)
        return lease

    try:
        lease = context.store.write(work)
    except (LeaseHeldError, LeaseLostError):
        return _refused(context, name, f"the lease {name} is taken")
    return Reply(201, view(lease, told=True))


def renew_lease(context: ApiContext, call: Call[NoQuery, Renewal]) -> Reply:
    """Extend a lease from now on; 409 unless epoch and token are those of the present holder."""
    name, asked = foreign(name_of(call.path)), call.body

    def work(tx: Transaction) -> Lease:
        mine = msgspec.structs.replace(_stored(tx, name), epoch=asked.epoch, token=asked.token)
        duration = mine.duration if asked.duration is None else asked.duration
        return tx.leases.renew(mine, duration, data=asked.data)

    try:
        lease = context.store.write(work)
    except LeaseLostError:
        return _refused(context, name, f"epoch {asked.epoch} of {name} is over, or that is not its token")
    return Reply(200, view(lease, told=True))


def release_lease(context: ApiContext, call: Call[ReleaseQuery, Release | None]) -> Reply:
    """Hand a lease back, so that a successor need not wait for its end; 409 as in a renewal."""
    name = foreign(name_of(call.path))
    asked = released(call.query, call.body)

    def work(tx: Transaction) -> None:
        stored = _stored(tx, name)
        if stored.holder is None:
            raise LeaseLostError(f"{name} is free")
        tx.leases.release(msgspec.structs.replace(stored, epoch=asked.epoch, token=asked.token))

    try:
        context.store.write(work)
    except LeaseLostError:
        return _refused(context, name, f"epoch {asked.epoch} of {name} is over, or that is not its token")
    return Reply(204)


def forget_lease(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Delete the name of a lease that nobody holds; 409 where somebody does. Its epochs are not given out again."""
    name = foreign(name_of(call.path))
    if not context.store.write(lambda tx: tx.leases.forget(_stored(tx, name))):
        return _refused(context, name, f"{name} is held, and only what is free can be deleted")
    context.log.info("lease name deleted", name=name, source=call.source)
    return Reply(204)


def view(lease: Lease, *, told: bool = False) -> LeaseView:
    """Return the lease as callers see it; ``told``: with its token."""
    return LeaseView(
        name=lease.name,
        holder=lease.holder if lease.held else None,
        epoch=lease.epoch,
        duration=lease.duration,
        remaining=round(lease.remaining, 3) if lease.held else 0.0,
        acquired_at=iso_exact(lease.acquired_at),
        renewed_at=iso_exact(lease.renewed_at),
        expires_at=iso_exact(lease.expires_at),
        data=lease.data,
        own=is_own(lease.name),
        token=lease.token if told else UNSET,
    )


def _stored(tx: Transaction, name: str) -> Lease:
    for lease in tx.leases.list(name):
        if lease.name == name:
            return lease
    raise errors.MissingError(f"Nobody has ever taken the lease {name}; POST to it to be the first.")


def _bound(tx: Transaction, source: str) -> None:
    """Refuse one name too many, of all and of this source; names that were not used for long make room first."""
    _make_room(tx, FORGOTTEN, _FORGET)
    foreign = _foreign(tx)
    if len(foreign) > MAX_NAMES and _make_room(tx, IDLE, 1):
        foreign = _foreign(tx)
    if len(foreign) > MAX_NAMES:
        raise errors.ForbiddenError(
            f"There are {MAX_NAMES} leases already, and no more are kept: use one of those names, or "
            "delete one that nobody needs: DELETE /v1/lease_names/NAME. "
            "A lease is for a role that is taken again and again, not for a single task."
        )
    mine = sum(lease.source == source for lease in foreign) if source else 0
    if mine > MAX_NAMES_PER_SOURCE:
        raise errors.ForbiddenError(
            f"{source} has {MAX_NAMES_PER_SOURCE} leases already, and no more are kept for one address: "
            "use one of those names, or delete one that nobody needs: DELETE /v1/lease_names/NAME."
        )


def _foreign(tx: Transaction) -> list[Lease]:
    return [lease for lease in tx.leases.list(brief=True) if not is_own(lease.name)]


def _make_room(tx: Transaction, seconds: float, names: int) -> int:
    """Forget names that nobody has held for so long; return how many went. Epochs that they had are not used again."""
    unused = (lease for lease in tx.leases.unused(seconds, names + _OWN) if not is_own(lease.name))
    return sum(tx.leases.forget(lease) for lease in list(unused)[:names])


def _refused(context: ApiContext, name: str, why: str) -> Reply:
    """Return the 409: who has the lease now, and when asking again makes sense."""

    def read(tx: Transaction) -> Lease | None:
        return next((lease for lease in tx.leases.list(name) if lease.name == name), None)

    lease = context.store.read(read)
    present = None if lease is None else view(lease)
    now = _said(present)
    message = errors.bare_metal_message(409, f"{why[:1].upper()}{why[1:]}: {now}.")
    headers: dict[str, Any] = {}
    if present is not None and present.holder is not None:
        headers["Retry-After"] = str(math.ceil(present.remaining))
    return Reply(409, LeaseConflict(error_message=message, lease=present), headers)


def _said(present: LeaseView | None) -> str:
    if present is None or present.holder is None:
        return "it is free now, acquire it anew"
    return f"{present.holder} holds it in epoch {present.epoch} for another {present.remaining:.1f} s"
