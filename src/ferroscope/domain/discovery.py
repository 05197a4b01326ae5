"""What is decided about a machine that nobody enrolled: whether it becomes a node, and with which BMC. Pure.

Callers are anonymous, so everything here is about keeping what they can cause small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from ferroscope.domain.lookup import Evidence, Refused
from ferroscope.domain.reasons import Reason

# Machines are counted by the minute of the database's clock.
PERIOD: Final = 60.0


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A MAC address of a machine that somebody rejected when it was the node ``node``."""

    address: str
    node: str
    rejected_at: float
    source: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines may be discovered in a minute, and how many may wait to be taken over."""

    per_minute: int
    waiting: int


def discoverable(evidence: Evidence) -> bool:
    """Whether a machine that no node fits may become one: it must not claim to be a node, and have a MAC."""
    return evidence.uuid is None and bool(evidence.macs)


def too_many(limits: Limits, *, made: int, unclaimed: int) -> Refused | None:
    """Return the refusal where a limit is reached: ``made`` in this minute, ``unclaimed`` so far."""
    if made >= limits.per_minute:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"{made} machines were discovered in this minute, and [auto_discovery] max_per_minute permits no more",
        )
    if unclaimed >= limits.waiting:
        return Refused(
            Reason.DISCOVERY_LIMITED,
            f"{unclaimed} discovered nodes are in enroll, and [auto_discovery] max_waiting permits no more",
        )
    return None


def rejected(rejections: Sequence[Rejection], since: float) -> Refused | None:
    """Return the refusal where one of the machine's addresses was rejected at or after ``since``."""
    for rejection in rejections:
        if rejection.rejected_at >= since:
            message = f"{rejection.address} belongs to a machine that was rejected when it was node {rejection.node}"
            return Refused(Reason.DISCOVERY_REJECTED, message)
    return None
