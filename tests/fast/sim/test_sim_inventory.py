"""Simulated inventories: always the same, never one like the other, and like what a ramdisk posts."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferroscope_client.core.mac_addresses import normalized_mac
from ferroscope_sim import inventory as sim
from tests.support.rows import each

INDEXES = st.integers(0, sim.MAX_INDEX)
NIC_COUNTS = [3, 3, 6, 2, 4, 4, 3, 2, 3, 8, 2, 4]
MAKERS = [
    "To Be Filled By O.E.M.",
    "Dell Inc.",
    "To Be Filled By O.E.M.",
    "To Be Filled By O.E.M.",
    "Supermicro",
    "Supermicro",
    "HPE",
    "Supermicro",
    "Dell Inc.",
    "HPE",
    "Lenovo",
    "Dell Inc.",
]


@given(INDEXES)
def test_the_same_index_is_the_same_machine(index: int) -> None:
    assert sim.generate(index) == sim.generate(index)


def test_a_machine_stays_what_it_is_from_one_release_to_the_next() -> None:
    assert sim.macs(259) == tuple(f"02:fe:00:01:03:0{port}" for port in range(len(sim.macs(259))))
    assert (sim.bmc_address(259), sim.bmc_address(259, 6)) == ("10.0.1.4", "fd00:fe20::104")
    assert [len(sim.macs(index)) for index in range(12)] == NIC_COUNTS
    assert [sim.document(index)["inventory"]["system_vendor"]["manufacturer"] for index in range(12)] == MAKERS


@given(st.sets(INDEXES, min_size=2, max_size=20))
def test_no_two_machines_share_an_address_or_a_serial_number(indexes: set[int]) -> None:
    seen: set[str] = set()
    for index in indexes:
        inventory = sim.document(index, size=sim.MIN_SIZE)["inventory"]
        addresses = {
            *(nic["mac_address"] for nic in inventory["interfaces"]),
            *(disk["serial"] for disk in inventory["disks"]),
            *(disk["wwn"] for disk in inventory["disks"]),
            inventory["bmc_address"],
            inventory["bmc_mac"],
            sim.bmc_address(index, 6),
        }
        assert len(addresses) == len(inventory["interfaces"]) + 2 * len(inventory["disks"]) + 3
        assert not addresses & seen
        seen |= addresses


@given(INDEXES)
def test_addresses_are_known_before_the_machine_calls(index: int) -> None:
    inventory = sim.document(index, size=sim.MIN_SIZE)["inventory"]
    assert {nic["mac_address"] for nic in inventory["interfaces"]} == set(sim.macs(index))
    assert normalized_mac(inventory["boot"]["pxe_interface"]) == sim.pxe_mac(index) == sim.macs(index)[0]
    assert inventory["bmc_address"] == sim.bmc_address(index)
    assert inventory["bmc_mac"] == sim.bmc_mac(index)
    assert inventory["bmc_v6address"] in (sim.bmc_address(index, 6), "::/0", None)
    assert ip_address(sim.bmc_address(index)) in ip_network("10.0.0.0/8")


@settings(max_examples=200)
@given(INDEXES, st.integers(sim.MIN_SIZE, 100_000))
def test_a_size_is_met_within_150_bytes(index: int, size: int) -> None:
    assert abs(len(sim.generate(index, size=size)) - size) <= 150


@each("size", [-1, 0, sim.MIN_SIZE - 1, sim.MAX_SIZE + 1])
def test_an_impossible_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="size"):
        sim.generate(1, size=size)


@each("index", [-1, sim.MAX_INDEX + 1])
def test_an_index_without_addresses_is_refused(index: int) -> None:
    for function in (sim.generate, sim.document, sim.macs, sim.pxe_mac, sim.bmc_mac, sim.bmc_address):
        with pytest.raises(ValueError, match="index"):
            function(index)
