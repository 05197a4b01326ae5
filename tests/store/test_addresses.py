"""``db.nodes.Addresses`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.core.callback_secret import ended_secret
from ferroscope.core.lookup import Candidates, Evidence
from ferroscope.db import Transaction
from ferroscope_client.core.states import State
from tests.store.conftest import Adapter
from tests.support import examples


def _found(adapter: Adapter, **evidence: object) -> Candidates:
    return adapter.read(lambda tx: tx.addresses.candidates(Evidence(**evidence)))  # type: ignore[arg-type]


def test_a_node_is_found_by_each_kind_of_evidence(adapter: Adapter) -> None:
    node, other = adapter.node(state=State.WAITING), adapter.node(state=State.WAITING)
    port = examples.port(node)

    def fill(tx):  # type: ignore[no-untyped-def]
        tx.ports.add([port, examples.port(node), examples.port(other)])
        tx.addresses.set_bmc(node.uuid, ["192.0.2.1", "2001:db8::1"])
        tx.addresses.set_bmc(other.uuid, ["192.0.2.2"])

    adapter.write(fill)
    assert _found(adapter, uuid=node.uuid).by_uuid == node
    assert list(_found(adapter, macs=(port.address, "52:54:00:00:00:00")).by_mac) == [node]
    assert list(_found(adapter, bmc_addresses=("2001:db8::1",)).by_bmc) == [node]
    everything = _found(adapter, uuid=node.uuid, macs=(port.address,), bmc_addresses=("192.0.2.1",))
    assert (everything.by_uuid, list(everything.by_mac), list(everything.by_bmc)) == (node, [node], [node])


def test_several_addresses_of_one_node_give_it_once(adapter: Adapter) -> None:
    node = adapter.node(state=State.WAITING)
    ports = [examples.port(node), examples.port(node)]

    def fill(tx):  # type: ignore[no-untyped-def]
        tx.ports.add(ports)
        tx.addresses.set_bmc(node.uuid, ["192.0.2.1", "2001:db8::1"])

    adapter.write(fill)
    found = _found(adapter, macs=tuple(port.address for port in ports) * 2, bmc_addresses=("192.0.2.1", "2001:db8::1"))
    assert list(found.by_mac) == [node]
    assert list(found.by_bmc) == [node]


def test_addresses_of_several_nodes_give_them_all(adapter: Adapter) -> None:
    nodes = [adapter.node(state=State.WAITING) for _ in range(3)]
    ports = [examples.port(node) for node in nodes]

    def fill(tx):  # type: ignore[no-untyped-def]
        tx.ports.add(ports)
        for node in nodes[:2]:
            tx.addresses.set_bmc(node.uuid, ["192.0.2.1"])

    adapter.write(fill)
    found = _found(adapter, macs=tuple(port.address for port in ports[1:]), bmc_addresses=("192.0.2.1",))
    assert {node.uuid for node in found.by_mac} == {node.uuid for node in nodes[1:]}
    assert {node.uuid for node in found.by_bmc} == {node.uuid for node in nodes[:2]}


def test_only_nodes_that_wait_for_a_callback_are_found_by_their_bmc(adapter: Adapter) -> None:
    nodes = {state: adapter.node(state=state) for state in State}
    adapter.write(lambda tx: [tx.addresses.set_bmc(node.uuid, ["192.0.2.1"]) for node in nodes.values()])
    found = {node.uuid for node in _found(adapter, bmc_addresses=("192.0.2.1",)).by_bmc}
    assert found == {nodes[State.STARTING].uuid, nodes[State.WAITING].uuid}


def test_each_mac_is_matched_with_its_node_and_ports_come_before_discoveries(adapter: Adapter) -> None:
    node, found = adapter.node(), adapter.node()
    port, own = examples.port(node), examples.mac()
    adapter.write(lambda tx: tx.ports.add([port]))
    adapter.write(lambda tx: tx.discoveries.created_in(1))
    adapter.write(lambda tx: tx.discoveries.add(found.uuid, [own, port.address]))
    matched = _found(adapter, macs=(port.address, own, examples.mac()))
    assert dict(matched.matches) == {port.address: node.uuid, own: found.uuid}
    assert {one.uuid for one in matched.by_mac} == {node.uuid, found.uuid}
    assert [one.uuid for one in _found(adapter, macs=(port.address,)).by_mac] == [node.uuid]
    assert [one.uuid for one in _found(adapter, macs=(own,)).by_mac] == [found.uuid]


@pytest.mark.parametrize("delivery", ["virtual-media", None])
def test_the_current_inspection_of_a_node_is_found_by_its_secret(adapter: Adapter, delivery: str | None) -> None:
    secrets = ["a" * 64, "b" * 64]
    node = adapter.node()
    old, new = (examples.inspection(node, secret=secret, secret_delivery=delivery) for secret in secrets)

    def fill(tx: Transaction) -> None:
        tx.inspections.add(old)
        tx.inspections.add(new)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), inspection=new.uuid))

    def found(secret: str | None) -> Candidates:
        return adapter.read(lambda tx: tx.addresses.candidates(Evidence(macs=(examples.mac(),)), secret))

    adapter.write(fill)
    assert found(secrets[0]).by_secret is None
    assert found(None).by_secret is None
    by_secret = found(secrets[1])
    assert by_secret.by_secret == adapter.get(node.uuid)
    assert by_secret.over_bmc is (delivery == "virtual-media")
    adapter.write(lambda tx: tx.inspections.update(new.uuid, secret=ended_secret(secrets[1])))
    assert found(secrets[1]).by_secret == adapter.get(node.uuid)


def test_nothing_is_found_by_no_or_by_unknown_evidence(adapter: Adapter) -> None:
    adapter.node(state=State.WAITING)
    unknown = {"uuid": examples.uuid(), "macs": (examples.mac(),), "bmc_addresses": ("192.0.2.9", "nul\x00")}
    for evidence in ({}, unknown):
        found = _found(adapter, **evidence)
        assert (found.by_uuid, list(found.by_mac), list(found.by_bmc)) == (None, [], [])


def test_new_bmc_addresses_replace_the_old_ones(adapter: Adapter) -> None:
    node = adapter.node(state=State.WAITING)
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, ["192.0.2.1", "192.0.2.2", "192.0.2.2"]))
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, iter(["192.0.2.3", "192.0.2.2"])))
    assert list(_found(adapter, bmc_addresses=("192.0.2.1",)).by_bmc) == []
    assert list(_found(adapter, bmc_addresses=("192.0.2.2",)).by_bmc) == [node]
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, []))
    assert list(_found(adapter, bmc_addresses=("192.0.2.2", "192.0.2.3")).by_bmc) == []


@pytest.mark.parametrize("number", [1, 64, 65, 512])
def test_any_number_of_addresses_may_be_given(adapter: Adapter, number: int) -> None:
    node = adapter.node(state=State.WAITING)
    port = examples.port(node)
    adapter.write(lambda tx: tx.ports.add([port]))
    adapter.write(lambda tx: tx.addresses.set_bmc(node.uuid, ["192.0.2.1"]))
    macs = tuple(examples.mac() for _ in range(number - 1))
    bmcs = tuple(f"10.0.{index >> 8}.{index & 255}" for index in range(number - 1))
    for macs_given, bmcs_given in (
        ((*macs, port.address), (*bmcs, "192.0.2.1")),
        ((port.address, *macs), ("192.0.2.1",)),
    ):
        found = _found(adapter, macs=macs_given, bmc_addresses=bmcs_given)
        assert (list(found.by_mac), list(found.by_bmc)) == ([node], [node])
    assert list(_found(adapter, macs=macs).by_mac) == []


def test_nodes_that_share_a_bmc_address_are_found_for_many_at_once(adapter: Adapter) -> None:
    one, two, three, four = (adapter.node() for _ in range(4))

    def work(tx: Transaction) -> None:
        tx.addresses.set_bmc(one.uuid, ["192.0.2.1", "192.0.2.2"])
        tx.addresses.set_bmc(two.uuid, ["192.0.2.2", "192.0.2.1"])
        tx.addresses.set_bmc(three.uuid, ["192.0.2.2"])
        tx.addresses.set_bmc(four.uuid, ["192.0.2.4"])

    adapter.write(work)
    found = adapter.read(lambda tx: tx.addresses.sharing([one.uuid, four.uuid]))
    assert {node: list(others) for node, others in found.items()} == {one.uuid: sorted([two.uuid, three.uuid])}
    assert adapter.read(lambda tx: tx.addresses.sharing([])) == {}
