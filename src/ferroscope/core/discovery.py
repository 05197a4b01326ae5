"""Discovery: whether an unknown machine becomes a node, and the record of the callers that were refused. Pure.

Callers are anonymous, so everything here limits what they can cause.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from ferroscope.core.lookup import Evidence, LookupRefusal, list_first
from ferroscope_client.core.advice import MAX_REFUSED_CALLERS_OF_SOURCE
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many, utc_text

# Discoveries are counted per minute of the database's clock.
PERIOD_SECONDS: Final = 60.0


class Rejection(msgspec.Struct, frozen=True, kw_only=True):
    """A MAC address of a machine that was rejected when it was the node ``node``."""

    address: str
    node: str
    rejected_at: float
    source: str | None = None


# Refused callers: operators must see calls of machines that belong to no node.

MAX_REFUSED_CALLERS: Final = 200
MAX_MACS_OF_REFUSED_CALLER: Final = 16
REFUSED_CALLER_SECONDS: Final = 7 * 86_400.0
# A call is not recorded if the machine's previous call is more recent than this.
REPEATED_CALL_SECONDS: Final = 60.0


class RefusedCaller(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that called from ``source``, belongs to no node, and was refused.

    ``machine``: the address that distinguishes it from others at its source, "" if it has none.
    """

    source: str
    machine: str
    macs: list[str]
    bmc_addresses: list[str]
    serial: str | None
    reason: str
    message: str
    called_at: float


def select_surplus(
    callers: Sequence[RefusedCaller], group_source: Callable[[str], str], now: float
) -> list[RefusedCaller]:
    """Return the callers to forget: old ones, and the oldest of the source that has the most.

    So a source that pretends to be many machines removes no record of another source.
    """
    kept: dict[str, list[RefusedCaller]] = defaultdict(list)  # by source, each the newest first
    recent = [caller for caller in callers if now - caller.called_at <= REFUSED_CALLER_SECONDS]
    for caller in sorted(recent, key=lambda caller: caller.called_at, reverse=True):
        of_source = kept[group_source(caller.source)]
        if len(of_source) < MAX_REFUSED_CALLERS_OF_SOURCE:
            of_source.append(caller)
    for _ in range(sum(map(len, kept.values())) - MAX_REFUSED_CALLERS):
        max(kept.values(), key=lambda of_source: (len(of_source), -of_source[-1].called_at)).pop()
    remaining = {(caller.source, caller.machine) for of_source in kept.values() for caller in of_source}
    return [caller for caller in callers if (caller.source, caller.machine) not in remaining]


def describe_caller(caller: RefusedCaller) -> str:
    """Return who called, from where and when, and why it was refused, as a clause."""
    kinds, addresses = ("MAC", "MACs"), caller.macs
    if not addresses:
        kinds, addresses = ("BMC address", "BMC addresses"), caller.bmc_addresses
    kind = kinds[len(addresses) > 1]
    machine = f"a machine with the {kind} {list_first(addresses)}" if addresses else "a machine without an address"
    serial = f" (serial number {caller.serial})" if caller.serial else ""
    origin = f"from {caller.source or 'an unknown address'} at {utc_text(caller.called_at)}"
    return f"{machine}{serial} called {origin}, and was refused: {caller.message}"


# Bytes of inspection data that may wait, for each machine that may wait: more than machines send on average, and less
# than the largest body.
MEAN_WAITING_BYTES: Final = 512 * 1024


class DiscoveryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many machines may be discovered per minute, and how many may await approval."""

    per_minute: int
    waiting: int


def discoverable(evidence: Evidence) -> bool:
    """Whether an unknown machine may become a node: it must have a MAC and must not claim to be a node."""
    return evidence.uuid is None and bool(evidence.macs)


def too_many(limits: DiscoveryLimits, *, made: int, unclaimed: int) -> LookupRefusal | None:
    """Return a refusal if a limit is reached; ``made``: discovered in this minute, ``unclaimed``: awaiting approval."""
    if made >= limits.per_minute:
        return LookupRefusal(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {many(made, 'machine')} discovered in this minute; see [auto_discovery] max_per_minute",
        )
    if unclaimed >= limits.waiting:
        return LookupRefusal(
            Reason.DISCOVERY_LIMITED,
            f"limit reached: {many(unclaimed, 'discovered node')} in enroll; see [auto_discovery] max_waiting",
        )
    return None


def too_large(waiting_bytes: int, machines: int, option: str) -> LookupRefusal | None:
    """Return a refusal if the data of waiting machines takes too much; ``option`` limits them to ``machines``."""
    most = machines * MEAN_WAITING_BYTES
    if waiting_bytes < most:
        return None
    return LookupRefusal(
        Reason.DISCOVERY_LIMITED,
        f"limit reached: the discovered nodes in enroll have {waiting_bytes:,} bytes of inspection data, and may have "
        f"{most:,}: {MEAN_WAITING_BYTES // 1024} KiB for each of [auto_discovery] {option} ({machines})",
    )


def refuse_rejected(rejections: Sequence[Rejection], since: float) -> LookupRefusal | None:
    """Return a refusal if one of the machine's addresses was rejected at or after ``since``."""
    for rejection in rejections:
        if rejection.rejected_at >= since:
            message = f"{rejection.address} belongs to a machine that was rejected as node {rejection.node}"
            return LookupRefusal(Reason.DISCOVERY_REJECTED, message)
    return None
