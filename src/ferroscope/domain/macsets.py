"""The gate's two sets of MACs, and what changes in them: pure, and small for a hundred thousand.

A MAC is in one of them at the most: a gate asks the allow set first, so being on both would mean
the same. What is in neither is an unknown machine.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ferroscope.domain.gate import KnownMac, number


class SetChange(msgspec.Struct):
    """What is to be added to and removed from the sets; MACs are numbers."""

    allow: set[int] = msgspec.field(default_factory=set)
    deny: set[int] = msgspec.field(default_factory=set)
    no_longer_allow: set[int] = msgspec.field(default_factory=set)
    no_longer_deny: set[int] = msgspec.field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(self.allow or self.deny or self.no_longer_allow or self.no_longer_deny)


class MacSets:
    """Addresses of ports that are no MACs match no machine, so they are in neither set."""

    def __init__(self) -> None:
        self.allowed: set[int] = set()
        self.denied: set[int] = set()

    def whole(self) -> SetChange:
        """Return everything, as what is to be added to empty sets."""
        return SetChange(allow=self.allowed, deny=self.denied)

    def look(self, macs: Iterable[str], known: Iterable[KnownMac]) -> SetChange:
        """Take over what is ``known`` now of these ``macs``; return what that changes."""
        booting = {one.mac: one.booting for one in known}
        change = SetChange()
        for mac in macs:
            found = number(mac)
            if found is not None:
                self._move(found, booting.get(mac), change)
        return change

    def replace(self, allowed: set[int], denied: set[int]) -> SetChange:
        """Let these take the place of the sets; return what that changes."""
        change = SetChange(
            allow=allowed - self.allowed,
            deny=denied - self.denied,
            no_longer_allow=self.allowed - allowed,
            no_longer_deny=self.denied - denied,
        )
        self.allowed, self.denied = allowed, denied
        return change

    def _move(self, mac: int, booting: bool | None, change: SetChange) -> None:
        if booting is not True and mac in self.allowed:
            self.allowed.discard(mac)
            change.no_longer_allow.add(mac)
        if booting is not False and mac in self.denied:
            self.denied.discard(mac)
            change.no_longer_deny.add(mac)
        if booting is True and mac not in self.allowed:
            self.allowed.add(mac)
            change.allow.add(mac)
        if booting is False and mac not in self.denied:
            self.denied.add(mac)
            change.deny.add(mac)
