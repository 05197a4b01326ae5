"""What a PXE filter lets pass: which states boot, MACs as numbers, and which changes are still to come.

A PXE filter holds MACs as numbers of 48 bits: that is what the kernel compares, and a hundred thousand
of them fit into a few megabytes. Source: the PXE filter of the HA specification for
ironic-inspector (allow and deny lists, one open filter at any time).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from ferroscope.core.values import normalize

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


class FilterRecord(msgspec.Struct, frozen=True):
    """What the open filter of a network tells of itself in its lease.

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
        """Whether the change ``seq`` is in force at this filter."""
        return self.open and seq <= self.applied and seq not in self.missing


_decode = msgspec.json.Decoder(FilterRecord).decode


def decode_record(data: str) -> FilterRecord:
    """Return what a lease tells of its filter; an empty record where that cannot be read."""
    try:
        return _decode(data) if data else FilterRecord()
    except (msgspec.DecodeError, ValueError):
        return FilterRecord()


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


# The filter's two sets of MACs, and what changes in them: pure, and small for a hundred thousand.
#
# A MAC is in one of them at the most: a PXE filter asks the allow set first, so being on both would mean
# the same. What is in neither is an unknown machine.


class SortedMacs:
    """A set of MACs as numbers, in order, of 8 bytes each: a Python set takes ten times as much."""

    def __init__(self, macs: Iterable[int] = ()) -> None:
        self._numbers = array("Q", macs)
        if any(later <= sooner for sooner, later in zip(self._numbers, self._numbers[1:], strict=False)):
            self._numbers = array("Q", sorted(set(self._numbers)))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers)

    def __contains__(self, mac: object) -> bool:
        if not isinstance(mac, int):
            return False
        place = bisect_left(self._numbers, mac)
        return place < len(self._numbers) and self._numbers[place] == mac

    def add(self, mac: int) -> None:
        if mac not in self:
            self._numbers.insert(bisect_left(self._numbers, mac), mac)

    def discard(self, mac: int) -> None:
        if mac in self:
            del self._numbers[bisect_left(self._numbers, mac)]

    def without(self, others: SortedMacs) -> set[int]:
        """Return those that are not among the others."""
        if self._numbers == others._numbers:
            return set()
        return {mac for mac in self._numbers if mac not in others}


class SetChange(msgspec.Struct, frozen=True):
    """What is to be added to and removed from the sets; MACs are numbers."""

    allow: Collection[int] = ()
    deny: Collection[int] = ()
    no_longer_allow: Collection[int] = ()
    no_longer_deny: Collection[int] = ()

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny or self.no_longer_allow or self.no_longer_deny)


class MacSets:
    """Addresses of ports that are no MACs match no machine, so they are in neither set."""

    def __init__(self) -> None:
        self.allowed = SortedMacs()
        self.denied = SortedMacs()

    def whole(self) -> SetChange:
        """Return everything, as what is to be added to empty sets."""
        return SetChange(allow=self.allowed, deny=self.denied)

    def look(self, macs: Iterable[str], known: Iterable[KnownMac]) -> SetChange:
        """Take over what is ``known`` now of these ``macs``; return what that changes."""
        verdicts: dict[int, bool | None] = {}
        for text in macs:
            if (mac := number(text)) is not None:
                verdicts[mac] = None
        for one in known:
            if (mac := number(one.mac)) is not None:
                verdicts[mac] = one.booting
        change = SetChange(
            allow={mac for mac, booting in verdicts.items() if booting is True and mac not in self.allowed},
            deny={mac for mac, booting in verdicts.items() if booting is False and mac not in self.denied},
            no_longer_allow={mac for mac, booting in verdicts.items() if booting is not True and mac in self.allowed},
            no_longer_deny={mac for mac, booting in verdicts.items() if booting is not False and mac in self.denied},
        )
        self._take(change)
        return change

    def replace(self, allowed: SortedMacs, denied: SortedMacs) -> SetChange:
        """Let these take the place of the sets; return what that changes."""
        change = SetChange(
            allow=allowed.without(self.allowed),
            deny=denied.without(self.denied),
            no_longer_allow=self.allowed.without(allowed),
            no_longer_deny=self.denied.without(denied),
        )
        self.allowed, self.denied = allowed, denied
        return change

    def _take(self, change: SetChange) -> None:
        for mac in change.no_longer_allow:
            self.allowed.discard(mac)
        for mac in change.no_longer_deny:
            self.denied.discard(mac)
        for mac in change.allow:
            self.allowed.add(mac)
        for mac in change.deny:
            self.denied.add(mac)
