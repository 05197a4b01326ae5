"""Why a claim was lost, and whether its delivery counts as an attempt. Pure.

Other members release a claim when its holder's heartbeat has expired. That does not prove that the holder died, or that
the request was the cause. Only a death of the holder alone counts:

* its supervisor saw it die, or it ended itself after an unexpected error; or
* another process kept its heartbeat through the holder's silence, so the database was available, and a process of the
  same host, started before or after, shows that the host has not failed.

If no heartbeat got through, it was an outage of the database. If no process of the host is left, the host or its
network failed, until a process appears that started later in the same boot of the host. A holder that has sent a
heartbeat since was only frozen or cut off, even if it died later. None of these counts; neither does a graceful stop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec

from ferroscope.core.model import Member, Request
from ferroscope_client.core import json_safety

# The part of its time to live after which a missing heartbeat is a gap. Shorter gaps are usual on a busy host.
GAP_SHARE: Final = 0.75
# The part of its time to live for which a member may return after an outage before its claims are released.
RETURN_SHARE: Final = 0.5


class Cause(StrEnum):
    """What ended a delivery; only ``DIED`` counts as an attempt."""

    DIED = "died"
    STOPPED = "stopped"
    SILENT_HOST = "silent-host"
    OUTAGE = "outage"
    RETURNED = "returned"


class Loss(msgspec.Struct, frozen=True, omit_defaults=True):
    """A delivery whose claim other members released: its holder, the time of its last heartbeat, and where it ran."""

    member: str
    cause: Cause
    at: float = 0.0
    host: str = ""
    boot: str | None = None


_encode = msgspec.json.Encoder().encode
json_safety.ready(tuple[Loss, ...])


def losses_of(request: Request) -> tuple[Loss, ...]:
    """Return the losses that are noted in the request; another form, of another release, is ignored."""
    try:
        return json_safety.decode_own(request.lost, tuple[Loss, ...]) if request.lost else ()
    except json_safety.JsonTypeError:
        return ()


def with_loss(lost: str | None, loss: Loss) -> str:
    """Return the text of a request's losses with one more."""
    losses = [*json_safety.decode_own(lost), loss] if lost else [loss]
    return _encode(losses).decode()


def deaths(request: Request) -> int:
    """Return the number of workers that died alone while they held this request."""
    return sum(loss.cause is Cause.DIED for loss in losses_of(request))


_WORDS: Final = {
    Cause.DIED: "its worker died",
    Cause.STOPPED: "its worker was stopped",
    Cause.SILENT_HOST: "the host or the network of its worker failed",
    Cause.OUTAGE: "outage of the database",
    Cause.RETURNED: "its worker was disconnected for a while",
}


def describe_delivery(request: Request) -> str:
    """Return a text: which delivery of a request this is, and what ended the lost ones."""
    causes = Counter(loss.cause for loss in losses_of(request))
    lost = "; ".join(
        f"lost: {_WORDS[cause]}" + (f" ({number} times)" if number > 1 else "") for cause, number in causes.items()
    )
    return f"attempt {count_attempts(request)} of {request.event}" + (f"; {lost}" if lost else "")


def may_release(holder: Member | None, members: Sequence[Member], now: float) -> bool:
    """Whether to release the claims of a holder that is not alive.

    After an outage of the database, no member is alive until its next heartbeat. A holder that returns keeps its
    claims, so the first member waits a moment for the others.
    """
    if holder is None or holder.left_at is not None:
        return True
    pause = holder.ttl * RETURN_SHARE
    return any(_steady(member, now - pause) for member in members if member.is_alive(now))


def loss_of(ident: str, holder: Member | None, members: Sequence[Member], now: float) -> Loss:
    """Return why the claims of a holder that left or is not alive are released; None if the holder is unknown."""
    if holder is None:
        return Loss(ident, Cause.OUTAGE)
    at = holder.expires_at - holder.ttl
    return Loss(ident, _cause(holder, at, members, now), at, holder.host, holder.boot)


def _cause(holder: Member, at: float, members: Sequence[Member], now: float) -> Cause:
    if holder.died_at is not None:
        return Cause.DIED
    if holder.left_at is not None or holder.detail.get("stopping"):
        return Cause.STOPPED
    alive = [member for member in members if member.id != holder.id and member.is_alive(now)]
    if not any(_steady(member, at + holder.ttl * GAP_SHARE) for member in alive):
        return Cause.OUTAGE
    return Cause.DIED if any(_same_host(member, holder.host, holder.boot) for member in alive) else Cause.SILENT_HOST


def review_losses(request: Request, members: Sequence[Member], now: float) -> Request:
    """Return the request with its losses updated: which holders returned, and which hosts had not failed."""
    losses = [msgspec.structs.replace(loss, cause=_cause_known_now(loss, members, now)) for loss in losses_of(request)]
    return msgspec.structs.replace(request, lost=_encode(losses).decode())


def _cause_known_now(loss: Loss, members: Sequence[Member], now: float) -> Cause:
    if loss.cause in (Cause.DIED, Cause.SILENT_HOST) and any(
        peer.id == loss.member and _has_returned(peer, loss, now) for peer in members
    ):
        return Cause.RETURNED
    if loss.cause is Cause.SILENT_HOST and any(
        peer.id != loss.member and peer.started_at > loss.at and _same_host(peer, loss.host, loss.boot)
        for peer in members
    ):
        return Cause.DIED
    return loss.cause


def count_attempts(request: Request) -> int:
    """Return how many deliveries of a request count as attempts, including the present one."""
    return request.attempt - sum(loss.cause is not Cause.DIED for loss in losses_of(request))


def _has_returned(member: Member, loss: Loss, now: float) -> bool:
    """Whether the holder has sent a heartbeat since, which ended the gap, whatever happened later."""
    return member.is_alive(now) or (0.0 < loss.at < (member.steady_since or 0.0))


def _steady(member: Member, since: float) -> bool:
    """Whether the member's heartbeats have had no gap since that time."""
    return member.steady_since is not None and member.steady_since <= since


def _same_host(member: Member, host: str, boot: str | None) -> bool:
    return member.host == host and member.boot == boot
