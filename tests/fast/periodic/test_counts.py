"""A large fleet is counted for those who look at it; a small one whenever they look."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ferroscope.core.counts import FleetCounts
from ferroscope.db import Transaction, counted_ahead
from ferroscope.hardware.search_index import IndexRow
from ferroscope.periodic.counts import Counts
from ferroscope_client.core.states import Provision
from tests.fast.periodic.members import Members
from tests.support import examples


def add_node(members: Members) -> None:
    node = examples.node(provision_state=Provision.AVAILABLE, last_error="no answer (timeout)")
    members.store.write(lambda tx: tx.nodes.add(node))
    rows = [IndexRow("nic", 0, t6="leaf-1", t7="port-1")]
    members.store.write(lambda tx: tx.search_index.replace(node.uuid, rows, had=False))


def count_failures(members: Members) -> int:
    fleet: FleetCounts = members.store.read(lambda tx: tx.statistics.fleet())
    return sum(failed.nodes for failed in fleet.failures)


def test_only_a_large_fleet_is_counted_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    task = Counts(members.store, members.clock)
    monkeypatch.setattr(counted_ahead, "LARGE_FLEET_NODES", 2)
    for number in range(4):
        add_node(members)
        task.step(examples.UNLED)
        assert count_failures(members) == number + 1
    add_node(members)
    assert count_failures(members) == 4
    assert members.store.read(lambda tx: tx.cabling.wiring()).switches == {"leaf-1": 3}
    members.clock.now += 61.0
    task.step(examples.UNLED)
    wiring = members.store.read(lambda tx: tx.cabling.wiring())
    assert (count_failures(members), wiring.switches) == (5, {"leaf-1": 5})
    assert wiring.shared_ports == [("leaf-1", "port-1")]
    monkeypatch.setattr(counted_ahead, "LARGE_FLEET_NODES", 9)
    task.step(examples.UNLED)
    add_node(members)
    assert count_failures(members) == 6


@pytest.mark.parametrize(("took", "period"), [(0.1, 10.0), (2.0, 40.0), (30.0, 120.0)])
def test_the_longer_it_counts_the_longer_it_pauses(monkeypatch: pytest.MonkeyPatch, took: float, period: float) -> None:
    members = Members()
    monkeypatch.setattr(counted_ahead, "LARGE_FLEET_NODES", 0)
    add_node(members)
    task = Counts(members.store, members.clock)

    def fence(_tx: Transaction) -> None:
        members.clock.now += took

    task.step(SimpleNamespace(fence=fence, keep_alive=lambda: None))
    assert task.period == pytest.approx(period)


def test_counts_of_a_leader_that_is_gone_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    members = Members()
    monkeypatch.setattr(counted_ahead, "LARGE_FLEET_NODES", 0)
    add_node(members)
    Counts(members.store, members.clock).step(examples.UNLED)
    add_node(members)
    assert count_failures(members) == 1
    members.clock.now += 301.0
    assert count_failures(members) == 2
