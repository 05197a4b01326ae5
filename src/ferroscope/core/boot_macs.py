"""The PXE filter's MAC sets: MACs as numbers, the allow and deny sets, and changes not yet seen.

MACs are 48-bit numbers, because that is what the kernel compares and 100,000 of them fit in a few megabytes.
Source: the PXE filter of the HA specification for ironic-inspector (allow and deny lists, one open filter at a time).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from ferroscope_client.core import json_safety
from ferroscope_client.core.mac_addresses import normalized_mac

LEASE_PREFIX: Final = "pxe/"
DHCP_STEP: Final = "dhcp"
"""The step of a timeline that says that the machine asked a boot host for an address, or which one it got."""
FILTER_STEP: Final = "pxe filter"
"""The step of a timeline that says whether a PXE filter lets the machine boot."""

# Longer than any transaction can last: the database ends sessions that are idle for some seconds.
HORIZON_SECONDS: Final = 60.0

# The most missing sequence numbers that are tracked. A larger gap does not come from transactions in progress.
_MAX_MISSING: Final = 10_000


class KnownMac(msgspec.Struct, frozen=True):
    """The MAC of a known node; ``booting``: the node is being inspected, so the machine may boot."""

    mac: str
    booting: bool


class MacChange(msgspec.Struct, frozen=True):
    """A change that affects ``mac``. ``seq`` increases, but not in commit order."""

    seq: int
    mac: str


class FilterRecord(msgspec.Struct, frozen=True):
    """What the leading PXE filter of a network publishes in its lease.

    ``applied`` is the highest sequence number it has applied; ``missing`` are lower ones it has not seen, because
    their transactions were still running or were rolled back. ``unknown``: MACs without a known port may boot.
    ``dhcp``: timelines say which machines got an address on this host; ``requests``: which ones asked for it, too.
    """

    host: str = ""
    open: bool = False
    applied: int = 0
    missing: tuple[int, ...] = ()
    allowed: int = 0
    denied: int = 0
    backends: tuple[str, ...] = ()
    unknown: bool = True
    dhcp: bool = False
    requests: bool = False

    def has_applied(self, seq: int) -> bool:
        """Whether the change ``seq`` is active in this filter."""
        return self.open and seq <= self.applied and seq not in self.missing


def decode_record(data: str) -> FilterRecord:
    """Return the record stored in a lease; an empty record if it cannot be decoded."""
    try:
        return json_safety.decode_own(data, FilterRecord) if data else FilterRecord()
    except json_safety.JsonError:
        return FilterRecord()


def number(mac: str) -> int | None:
    """Return the MAC, in any accepted spelling, as a number; None if it is invalid."""
    text = normalized_mac(mac)
    return None if text is None else int(text.replace(":", ""), 16)


def spell_mac(mac: int) -> str:
    """Return the number formatted as ``aa:bb:cc:dd:ee:ff``."""
    return mac.to_bytes(6, "big").hex(":")


class ChangeWindow:
    """Tracks which sequence numbers were seen, so that a late commit is not missed.

    A transaction draws its number before it commits: after reading up to 12, number 11 may still appear. Missing
    numbers are expected for ``HORIZON_SECONDS``; after that, their transactions were rolled back.
    """

    def __init__(self, low: int = 0) -> None:
        self._high = low
        self._missing: dict[int, float] = {}

    @property
    def low(self) -> int:
        """The number up to which nothing is missing; read everything after it."""
        return min(self._missing) - 1 if self._missing else self._high

    @property
    def high(self) -> int:
        """The highest number seen."""
        return self._high

    @property
    def missing(self) -> tuple[int, ...]:
        """Lower numbers that may still be committed."""
        return tuple(sorted(self._missing))

    def is_new(self, change: MacChange) -> bool:
        """Whether ``take`` would return it."""
        return change.seq > self._high or change.seq in self._missing

    def take(self, changes: Iterable[MacChange], now: float) -> set[str]:
        """Return the MACs of the new changes; ``changes`` are ordered by sequence number."""
        fresh = set()
        for change in changes:
            if change.seq > self._high:
                self._missing.update(
                    dict.fromkeys(range(max(self._high + 1, change.seq - _MAX_MISSING), change.seq), now)
                )
                self._high = change.seq
            elif self._missing.pop(change.seq, None) is None:
                continue
            fresh.add(change.mac)
        self._settle(now)
        return fresh

    def _settle(self, now: float) -> None:
        for seq in [seq for seq, since in self._missing.items() if now - since > HORIZON_SECONDS]:
            del self._missing[seq]


# The allow and deny sets. A MAC is in at most one of them: the allow set is checked first, so being in both would mean
# the same as being in the allow set. A MAC in neither set belongs to an unknown machine.


class SortedMacs:
    """A sorted set of MACs as 8-byte numbers; a Python set takes ten times the memory."""

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
        """Return the MACs that are not in ``others``."""
        if self._numbers == others._numbers:
            return set()
        return {mac for mac in self._numbers if mac not in others}


class SetChange(msgspec.Struct, frozen=True):
    """The MACs, as numbers, to add to and remove from the sets."""

    allow: Collection[int] = ()
    deny: Collection[int] = ()
    no_longer_allow: Collection[int] = ()
    no_longer_deny: Collection[int] = ()

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny or self.no_longer_allow or self.no_longer_deny)


class MacSets:
    """The allow and deny sets. Port addresses that are not MACs are ignored, because they match no machine."""

    def __init__(self) -> None:
        self.allowed = SortedMacs()
        self.denied = SortedMacs()

    def whole(self) -> SetChange:
        """Return the complete sets, as a change to empty sets."""
        return SetChange(allow=self.allowed, deny=self.denied)

    def look(self, macs: Iterable[str], records: Iterable[KnownMac]) -> SetChange:
        """Apply the ``records`` about these ``macs`` now; return the resulting change."""
        verdicts: dict[int, bool | None] = {}
        for text in macs:
            if (mac := number(text)) is not None:
                verdicts[mac] = None
        for known_mac in records:
            if (mac := number(known_mac.mac)) is not None:
                verdicts[mac] = known_mac.booting
        change = SetChange(
            allow={mac for mac, booting in verdicts.items() if booting is True and mac not in self.allowed},
            deny={mac for mac, booting in verdicts.items() if booting is False and mac not in self.denied},
            no_longer_allow={mac for mac, booting in verdicts.items() if booting is not True and mac in self.allowed},
            no_longer_deny={mac for mac, booting in verdicts.items() if booting is not False and mac in self.denied},
        )
        self._take(change)
        return change

    def replace(self, allowed: SortedMacs, denied: SortedMacs) -> SetChange:
        """Replace both sets; return the difference."""
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
