"""Machines that another service inspects may boot, whatever is known of them here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferroscope.contrib.boot.pxe_filter.sync import MacSync
from ferroscope.core.boot_macs import SetChange, SortedMacs, number, spell_mac
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
from ferroscope_client.core.states import State
from tests.support import examples
from tests.support.stores import open_store

KNOWN, BOOTING, UNKNOWN = (spell_mac(0x525400000010 + one) for one in range(3))


class Site:
    """Two known machines, one of which is inspected here."""

    def __init__(self) -> None:
        self.elsewhere: frozenset[str] = frozenset()
        self.store: Store = open_store()
        self.idle = examples.node()
        booting = examples.node(state=State.WAITING)
        for node, mac in ((self.idle, KNOWN), (booting, BOOTING)):
            self.add(node, mac)
        self.sync = MacSync(self.store, lambda: self.elsewhere)

    def add(self, node: Node, mac: str) -> None:
        def work(tx: Transaction) -> None:
            tx.nodes.add(node)
            tx.ports.add([examples.port(node, address=mac)])

        self.store.write(work)

    def sets(self) -> tuple[set[str], set[str]]:
        """Return the allowed and the denied MACs."""
        return set(map(spell_mac, self.sync.sets.allowed)), set(map(spell_mac, self.sync.sets.denied))

    def follow(self) -> list[SetChange]:
        return list(self.sync.changes())


@pytest.fixture(params=["whole", "changes"])
def read(request: pytest.FixtureRequest) -> Callable[[Site], bool]:
    """Give both ways to read: everything again, or what has changed."""
    if request.param == "whole":
        return lambda site: bool(site.sync.whole())
    return lambda site: bool(site.follow())


def test_they_pass_while_they_are_inspected_there(read: Callable[[Site], bool]) -> None:
    site = Site()
    site.sync.whole()
    assert site.sets() == ({BOOTING}, {KNOWN})
    site.elsewhere = frozenset({KNOWN, UNKNOWN})
    read(site)
    assert site.sets() == ({BOOTING, KNOWN, UNKNOWN}, set())
    site.elsewhere = frozenset({UNKNOWN, BOOTING})
    read(site)
    assert site.sets() == ({BOOTING, UNKNOWN}, {KNOWN})
    site.elsewhere = frozenset()
    read(site)
    assert site.sets() == ({BOOTING}, {KNOWN})


def test_what_changes_here_meanwhile_does_not_deny_them() -> None:
    site = Site()
    site.elsewhere = frozenset({KNOWN, UNKNOWN})
    site.sync.whole()
    site.add(examples.node(), UNKNOWN)  # it is enrolled, and so denied, if it were not inspected there
    site.store.write(lambda tx: tx.macs.changed(site.idle.uuid, booting=False))
    assert site.follow() == []
    assert site.sets() == ({BOOTING, KNOWN, UNKNOWN}, set())
    site.elsewhere = frozenset()
    (change,) = site.follow()
    assert SortedMacs(change.deny).without(SortedMacs()) == {number(KNOWN), number(UNKNOWN)}
    assert site.sets() == ({BOOTING}, {KNOWN, UNKNOWN})
