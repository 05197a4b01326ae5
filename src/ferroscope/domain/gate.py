"""What a PXE gate lets pass: which states boot, MACs as numbers, and which changes are still to come.

A gate holds MACs as numbers of 48 bits: that is what the kernel compares, and a hundred thousand
of them fit into a few megabytes. Source: the PXE filter of the HA specification for
ironic-inspector (allow and deny lists, one open filter at any time).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ferroscope.domain.macs import normalize

LEASE_PREFIX: Final = "pxe/"

# Longer than any transaction can last: sessions end those that say nothing for some seconds.
HORIZON: Final = 60.0

# No more numbers than these are waited for: whoever left out so many will not commit them all late.
_MOST: Final = 10_000


class KnownMac(msgspec.Struct, frozen=True):
    """The MAC of a known node; ``booting``: the node is under inspection, so it may boot."""

    mac: str
    booting: bool


class MacChange(msgspec.Struct, frozen=True):
    """Something about ``mac`` was changed; ``seq`` grows, but not in the order of commits."""

    seq: int
    mac: str


class GateRecord(msgspec.Struct, frozen=True):
    """What the open gate of a network tells of itself in its lease.

    ``applied`` is the newest sequence number that it has applied, ``missing`` are smaller ones
    that it has not seen: of transactions that were under way, or that came to nothing. ``unknown``:
    whether machines of which no port is known pass, too.
    """

    host: str = ""
    open: bool = False
    applied: int = 0
    missing: tuple[int, ...] = ()
    allowed: int = 0
    denied: int = 0
    backends: tuple[str, ...] = ()
    unknown: bool = True

    def has_applied(self, seq: int) -> bool:
        """Whether the change ``seq`` is in force at this gate."""
        return self.open and seq <= self.applied and seq not in self.missing


_decode = msgspec.json.Decoder(GateRecord).decode


def decode_record(data: str) -> GateRecord:
    """Return what a lease tells of its gate; an empty record where that cannot be read."""
    try:
        return _decode(data) if data else GateRecord()
    except (msgspec.DecodeError, ValueError):
        return GateRecord()


def number(mac: str) -> int | None:
    """Return the MAC, in any of its spellings, as a number; None where it is none."""
    text = normalize(mac)
    return None if text is None else int(text.replace(":", ""), 16)


def spelled(mac: int) -> str:
    """Return the number as ``aa:bb:cc:dd:ee:ff``."""
    return mac.to_bytes(6, "big").hex(":")


class ChangeWindow:
    """Which sequence numbers were seen, so that a commit that comes late is not missed.

    A number is drawn before its transaction commits: somebody who has read up to 12 may be told
    of 11 afterwards. Numbers left out are expected until they are ``HORIZON`` seconds old; from
    then on they are those of transactions that came to nothing.
    """

    def __init__(self, low: int = 0) -> None:
        self._low = low
        self._high = low
        self._missing: dict[int, float] = {}

    @property
    def low(self) -> int:
        """Everything up to this number is settled; read what is greater."""
        return min(self._missing) - 1 if self._missing else self._high

    @property
    def high(self) -> int:
        """The greatest number that was seen."""
        return self._high

    @property
    def missing(self) -> tuple[int, ...]:
        """Smaller numbers that may still come."""
        return tuple(sorted(self._missing))

    def is_new(self, change: MacChange) -> bool:
        """Whether ``take`` would return it."""
        return change.seq > self._high or change.seq in self._missing

    def take(self, changes: Iterable[MacChange], now: float) -> set[str]:
        """Return the MACs of those that are new; ``changes`` are in the order of their numbers."""
        fresh = set()
        for change in changes:
            if change.seq > self._high:
                self._missing.update(dict.fromkeys(range(max(self._high + 1, change.seq - _MOST), change.seq), now))
                self._high = change.seq
            elif self._missing.pop(change.seq, None) is None:
                continue
            fresh.add(change.mac)
        self._settle(now)
        return fresh

    def _settle(self, now: float) -> None:
        for seq in [seq for seq, since in self._missing.items() if now - since > HORIZON]:
            del self._missing[seq]
