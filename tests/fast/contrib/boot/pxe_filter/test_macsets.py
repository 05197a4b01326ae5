"""The filter's sets: whatever is looked at, they hold what is known, and the changes lead there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferroscope.core.boot_macs import KnownMac, MacSets, SetChange, SortedMacs, number, spell_mac

MACS = [spell_mac(0x525400000000 + n) for n in range(8)]
worlds = st.dictionaries(st.sampled_from(MACS), st.booleans())


def test_sorted_macs_are_a_set() -> None:
    macs = SortedMacs([3, 1, 2, 3])
    assert list(macs) == [1, 2, 3]
    assert 2 in macs
    assert 4 not in macs
    assert "2" not in macs
    macs.add(2)
    macs.discard(4)
    macs.discard(1)
    assert list(macs) == [2, 3]
    assert macs.without(SortedMacs([3])) == {2}
    assert macs.without(SortedMacs([2, 3])) == set()


class Kernel:
    """Applies changes as the kernel does: what is deleted has to be there."""

    def __init__(self) -> None:
        self.allow: set[int] = set()
        self.deny: set[int] = set()

    def apply(self, change: SetChange) -> None:
        assert set(change.no_longer_allow) <= self.allow
        assert set(change.no_longer_deny) <= self.deny
        self.allow = self.allow - set(change.no_longer_allow) | set(change.allow)
        self.deny = self.deny - set(change.no_longer_deny) | set(change.deny)

    def holds(self, world: dict[str, bool]) -> bool:
        allowed = {number(mac) for mac, booting in world.items() if booting}
        denied = {number(mac) for mac, booting in world.items() if not booting}
        return (self.allow, self.deny) == (allowed, denied)


@given(st.lists(st.tuples(worlds, st.booleans()), min_size=1, max_size=12))
def test_changes_lead_from_each_state_of_the_world_to_the_next(steps: list[tuple[dict[str, bool], bool]]) -> None:
    sets, kernel = MacSets(), Kernel()
    for world, whole in steps:
        known = [KnownMac(mac, booting) for mac, booting in world.items()]
        if whole:
            change = sets.replace(
                SortedMacs(number(one.mac) or 0 for one in known if one.booting),
                SortedMacs(number(one.mac) or 0 for one in known if not one.booting),
            )
        else:
            change = sets.look(MACS, known)
        kernel.apply(change)
        assert kernel.holds(world)
        assert not sets.look(MACS, known), "what is known already changes nothing"


def test_addresses_in_odd_spellings_are_the_same_mac_and_others_are_left_out() -> None:
    sets = MacSets()
    change = sets.look(["52-54-00-AA-00-01", "no mac"], [KnownMac("52-54-00-AA-00-01", True), KnownMac("no mac", True)])
    assert set(change.allow) == {0x525400AA0001}
    assert (len(sets.allowed), len(sets.denied)) == (1, 0)
    assert set(sets.look(["52:54:00:aa:00:01"], []).no_longer_allow) == {0x525400AA0001}
