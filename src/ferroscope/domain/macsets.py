"""The gate's two sets of MACs, and what changes in them: pure, and small for a hundred thousand.

A MAC is in one of them at the most: a gate asks the allow set first, so being on both would mean
the same. What is in neither is an unknown machine.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator

import msgspec

from ferroscope.domain.gate import KnownMac, number


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
