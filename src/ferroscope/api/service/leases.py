"""Leases over HTTP: leader election for any program.

Only the holder receives the token, so that only the holder can renew and release the lease. The epoch increases with
each new holder: use it as a fencing token. Source: as of ``api.http.conditions``.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from ferroscope.api import errors
from ferroscope.api.auth import access
from ferroscope.api.auth.policy import PolicyTarget
from ferroscope.api.errors import BadRequestError, ForbiddenError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import shown_value
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import iso_exact
from ferroscope.config.options import ApiSettings
from ferroscope.contracts.errors import LeaseHeldError, LeaseLostError
from ferroscope.core.model import Lease, LeaseClaim, LeaseProof
from ferroscope.db import Transaction
from ferroscope_client.core.values import limit_key

# Limits on names and durations, and the leases of the service itself.
#
# They keep a caller from filling the database, and from taking the leases that Ferroscope itself uses.

MAX_DURATION: Final = 86400
MAX_NAMES: Final = 1000
# Seconds without a holder after which a name may be deleted if the limit is reached, and after which it is deleted.
IDLE_SECONDS: Final = 3600.0
FORGOTTEN_SECONDS: Final = 7 * 86400.0

_MAX_NAME: Final = 200
_NAME: Final = re.compile(r"[A-Za-z0-9._~-]+(/[A-Za-z0-9._~-]+)*\Z", re.ASCII)
# HTTP clients normalize these path segments, and would request another lease.
_STEPS: Final = frozenset({".", ".."})
_OWN_FIELDS: Final = frozenset({"periodic", "pxe", "failover", "ferroscope", "reboot-throttle"})

Duration = Annotated[float, msgspec.Meta(ge=1, le=MAX_DURATION, description="Seconds without renewal.")]
Epoch = Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Holder = Annotated[str, msgspec.Meta(min_length=1, max_length=255, description="Name of the holder.")]
Data = Annotated[str, msgspec.Meta(max_length=4096, description="Arbitrary data that the holder publishes.")]


class Acquisition(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of POST /v1/leases/{name}."""

    holder: Holder
    duration: Duration
    data: Data = ""


class Renewal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of PUT /v1/leases/{name}; without ``duration`` and ``data``, these do not change."""

    epoch: Epoch
    token: Token
    duration: Duration | None = None
    data: Data | None = None


class Release(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of DELETE /v1/leases/{name}; its query may contain the same."""

    epoch: Epoch
    token: Token


class ReleaseQuery(msgspec.Struct, frozen=True):
    """Query of DELETE /v1/leases/{name}, for clients that cannot send a body with it."""

    epoch: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1})] | None = None
    token: str | None = None


class ForgetQuery(msgspec.Struct, frozen=True):
    """Query of DELETE /v1/lease_names/{name}; ``held``: a lease that is held is taken from its holder."""

    held: bool = False


class LeaseListQuery(msgspec.Struct, frozen=True):
    """Query of GET /v1/leases."""

    prefix: str = ""


def name_of(path: dict[str, str]) -> str:
    """Return the lease's name; ``BadRequestError`` if it is invalid."""
    name = path["name"]
    if len(name) > _MAX_NAME or _NAME.match(name) is None or not _STEPS.isdisjoint(name.split("/")):
        raise BadRequestError(
            f"Invalid lease name {shown_value(name)}: use 1 to {_MAX_NAME} letters, digits, '-', '.', '_' and '~', in "
            "components separated by '/'; '.' and '..' are not allowed as components."
        )
    return name


def foreign(name: str) -> str:
    """Return the name of a lease that callers may acquire; ``ForbiddenError`` for the service's own."""
    if is_own(name):
        raise ForbiddenError(
            f"Lease {name} is reserved for Ferroscope itself and read-only. Choose another name, for example with the "
            "name of your program as a prefix."
        )
    return name


def is_own(name: str) -> bool:
    """Return whether Ferroscope itself uses this lease."""
    return name.partition("/")[0] in _OWN_FIELDS


def read_release(query: ReleaseQuery, body: Any) -> Release:
    """Return epoch and token of a DELETE, from its body or its query."""
    if isinstance(body, Release):
        if query != ReleaseQuery():
            raise BadRequestError("epoch and token of the lease are in the query and in the body; send them once.")
        return body
    if query.epoch is None or query.token is None or not 1 <= query.epoch < 2**63:
        raise BadRequestError("epoch and token of the lease are required, in the query or in the body.")
    return Release(epoch=query.epoch, token=query.token[:64])


# Names that are deleted at once, and the number of the service's own names, which are never deleted.
_MAX_FORGOTTEN_NAMES: Final = 100
_MAX_OWN_NAMES: Final = 32
_RECORD_AGAIN: Final = 5.0  # seconds after which a candidate that asks again is recorded again


class CandidateView(msgspec.Struct, frozen=True):
    """Who asked for a lease that was held, and when last."""

    holder: str
    asked_at: str | None


class LeaseView(msgspec.Struct, frozen=True):
    """A lease; ``holder`` null: free. ``duration`` and ``remaining`` are in seconds.

    Only the holder gets ``token``: in the response to an acquisition or a renewal. ``candidates``, in the response to
    a GET of one lease: who has asked for it through the API, and may ask again.
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
    candidates: list[CandidateView] | UnsetType = UNSET


class LeaseList(msgspec.Struct, frozen=True):
    """Leases by name."""

    leases: list[LeaseView]


class LeaseConflict(msgspec.Struct, frozen=True):
    """A Bare Metal API error with the current state of the lease."""

    error_message: str
    lease: LeaseView | None


def list_leases(context: ApiContext, call: RouteCall[LeaseListQuery, None]) -> Reply:
    """List the leases that the caller may see by name, including free ones."""
    prefix = call.query.prefix
    leases = context.data.store.read(lambda tx: tx.leases.list(prefix))
    # SQLite compares a prefix case-insensitively.
    shown = [lease for lease in leases if lease.name.startswith(prefix) and _sees(context, call, lease.name)]
    return Reply(200, LeaseList(leases=[view(lease) for lease in shown]))


def _sees(context: ApiContext, call: RouteCall[Any, Any], name: str) -> bool:
    return access.may(context.access.policy, "ferroscope:lease:get", call.identity, PolicyTarget(lease=name))


def get_lease(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show a lease: its holder, epoch, remaining time, and who waits for it."""
    name = name_of(call.path)
    lease, waiting = context.data.store.read(lambda tx: (_stored_lease(tx, name), tx.leases.candidates(name)))
    shown = [CandidateView(candidate.holder, iso_exact(candidate.asked_at)) for candidate in waiting]
    return Reply(200, msgspec.structs.replace(view(lease), candidates=shown))


def acquire_lease(context: ApiContext, call: RouteCall[NoQuery, Acquisition]) -> Reply:
    """Acquire a lease that is free or has expired; 409 with its holder if it is held."""
    name, asked = foreign(name_of(call.path)), call.body

    source = _principal(call)

    def work(tx: Transaction) -> LeaseClaim:
        new = tx.leases.get(name) is None
        claim = tx.leases.acquire(name, asked.holder, asked.duration, data=asked.data, source=source)
        if new:
            _check_limits(tx, source, _quota(context.settings.api, name, call.identity.user))
        return claim

    try:
        claim = context.data.store.write(work)
    except LeaseHeldError as exc:
        _add_candidate(context, name, asked, exc.lease.remaining)
        return _conflict_reply(context, name, f"lease {name} is not free")
    except LeaseLostError:
        return _conflict_reply(context, name, f"lease {name} is not free")
    return Reply(201, view(claim.lease, token=claim.token))


def _add_candidate(context: ApiContext, name: str, asked: Acquisition, remaining: float) -> None:
    """Record who waits, and until when. Not each time, because that would write once for each poll."""

    def is_recorded(tx: Transaction) -> bool:
        since = tx.now - _RECORD_AGAIN
        return any(
            candidate.holder == asked.holder and candidate.asked_at > since for candidate in tx.leases.candidates(name)
        )

    if not context.data.store.read(is_recorded):
        seconds = max(asked.duration, remaining) + _RECORD_AGAIN
        context.data.store.write(lambda tx: tx.leases.add_candidate(name, asked.holder, seconds))


def _principal(call: RouteCall[Any, Any]) -> str:
    """Return the owner of a lease name for the limits: the caller, or the source address of an unknown caller."""
    return call.identity.principal[:64] or limit_key(call.source)


def renew_lease(context: ApiContext, call: RouteCall[NoQuery, Renewal]) -> Reply:
    """Renew a lease; 409 unless epoch and token are those of the current holder."""
    name, asked = foreign(name_of(call.path)), call.body

    def work(tx: Transaction) -> LeaseClaim:
        stored = _stored_lease(tx, name)
        duration = stored.duration if asked.duration is None else asked.duration
        return tx.leases.renew(LeaseProof(name=name, epoch=asked.epoch, token=asked.token), duration, data=asked.data)

    try:
        claim = context.data.store.write(work)
    except LeaseLostError:
        return _conflict_reply(context, name, f"epoch {asked.epoch} of lease {name} has ended, or the token is wrong")
    return Reply(200, view(claim.lease, token=claim.token))


def release_lease(context: ApiContext, call: RouteCall[ReleaseQuery, Release | None]) -> Reply:
    """Release a lease, so that a successor need not wait until it expires; 409 as for a renewal."""
    name = foreign(name_of(call.path))
    asked = read_release(call.query, call.body)

    def work(tx: Transaction) -> None:
        if _stored_lease(tx, name).holder is None:
            raise LeaseLostError(f"{name} is free")
        tx.leases.release(LeaseProof(name=name, epoch=asked.epoch, token=asked.token))

    try:
        context.data.store.write(work)
    except LeaseLostError:
        return _conflict_reply(context, name, f"epoch {asked.epoch} of lease {name} has ended, or the token is wrong")
    return Reply(204)


def forget_lease(context: ApiContext, call: RouteCall[ForgetQuery, None]) -> Reply:
    """Delete the name of a free lease; 409 if it is held and not revoked. Its epochs are not used again."""
    name, held = foreign(name_of(call.path)), call.query.held

    def work(tx: Transaction) -> str | None:
        stored = _stored_lease(tx, name)
        if not tx.leases.forget(stored, held=held):
            raise LeaseLostError(f"{name} is held")
        return stored.holder if stored.held else None

    try:
        holder = context.data.store.write(work)
    except LeaseLostError:
        return _conflict_reply(context, name, f"lease {name} is held; to take it from its holder, add held=true")
    context.process.log.info("lease name deleted", name=name, source=call.source, revoked_from=holder)
    return Reply(204)


def view(lease: Lease, *, token: str | UnsetType = UNSET) -> LeaseView:
    """Return the representation of a lease."""
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
        token=token,
    )


def _stored_lease(tx: Transaction, name: str) -> Lease:
    lease = tx.leases.get(name)
    if lease is None:
        raise errors.MissingError(f"Lease {name} could not be found; POST acquires it.")
    return lease


class Quota(NamedTuple):
    """At most ``names`` lease names of one caller that begin with ``prefix``."""

    names: int
    prefix: str = ""


def _quota(settings: ApiSettings, name: str, user: str) -> Quota:
    """Return the quota for a new name of this user: that of the longest prefix, else of the user, else of everybody."""
    quotas = settings.lease_quotas
    prefix = max(
        (quota_key for quota_key in quotas if quota_key.endswith("/") and name.startswith(quota_key)),
        key=len,
        default="",
    )
    return Quota(int(quotas[prefix]), prefix) if prefix else Quota(int(quotas.get(user, settings.max_lease_names)))


def _check_limits(tx: Transaction, source: str, quota: Quota) -> None:
    """Check the limits on names, of all sources and of this one; delete unused names first."""
    _make_room(tx, FORGOTTEN_SECONDS, _MAX_FORGOTTEN_NAMES)
    foreign = _foreign(tx)
    if len(foreign) > MAX_NAMES and _make_room(tx, IDLE_SECONDS, 1):
        foreign = _foreign(tx)
    if len(foreign) > MAX_NAMES:
        raise errors.ForbiddenError(
            f"The limit of {MAX_NAMES} lease names is reached: use an existing name, or delete an unused one: "
            "DELETE /v1/lease_names/NAME. A lease is meant for a permanent role, not for a single task."
        )
    mine = sum(lease.source == source and lease.name.startswith(quota.prefix) for lease in foreign) if source else 0
    if mine > quota.names:
        below = f" below {quota.prefix}" if quota.prefix else ""
        raise errors.ForbiddenError(
            f"The limit of {quota.names} lease names{below} for {source} is reached ([api] lease_quotas): use an "
            "existing name, or delete an unused one: DELETE /v1/lease_names/NAME."
        )


def _foreign(tx: Transaction) -> list[Lease]:
    return [lease for lease in tx.leases.list(brief=True) if not is_own(lease.name)]


def _make_room(tx: Transaction, seconds: float, names: int) -> int:
    """Delete names without a holder for ``seconds``; return their number. Their epochs are not used again."""
    unused = (lease for lease in tx.leases.unused(seconds, names + _MAX_OWN_NAMES) if not is_own(lease.name))
    return sum(tx.leases.forget(lease) for lease in list(unused)[:names])


def _conflict_reply(context: ApiContext, name: str, why: str) -> Reply:
    """Return the 409 response: the current holder, and when to try again."""
    lease = context.data.store.read(lambda tx: tx.leases.get(name))
    present = None if lease is None else view(lease)
    message = errors.bare_metal_message(409, f"{why[:1].upper()}{why[1:]}: {_holder(present)}.")
    headers: dict[str, Any] = {}
    if present is not None and present.holder is not None:
        headers["Retry-After"] = str(math.ceil(present.remaining))
    return Reply(409, LeaseConflict(error_message=message, lease=present), headers)


def _holder(present: LeaseView | None) -> str:
    if present is None or present.holder is None:
        return "it is free now; acquire it again"
    return f"held by {present.holder} in epoch {present.epoch} for another {present.remaining:.1f} s"
