"""Two views of one machine: the ramdisk's word counts, the BMC fills gaps, differences are told."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ferroscope.hardware.sources import combine

IN_BAND = {
    "cpu": {"count": 64, "architecture": "x86_64", "model_name": ""},
    "interfaces": [{"name": "eno1", "mac_address": "AA:BB:CC:00:00:01", "speed_mbps": None}],
    "disks": [{"name": "/dev/sda", "serial": "S1", "size": 10}],
}
FROM_BMC = {
    "cpu": {"count": 32, "model_name": "Xeon"},
    "interfaces": [
        {"name": "NIC.1", "mac_address": "aa:bb:cc:00:00:01", "speed_mbps": 25000},
        {"name": "NIC.2", "mac_address": "aa:bb:cc:00:00:02"},
    ],
    "disks": [{"name": "Bay 0", "serial": "S1", "size": 10, "model": "M"}],
    "system_vendor": {"product_name": "R640"},
}

_NAMES = ["interfaces", "disks", "cpu", "name", "mac_address", "serial"]
_documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NAMES), inner, max_size=4),
    max_leaves=20,
)


def test_the_ramdisk_counts_and_the_bmc_fills_the_gaps() -> None:
    hardware = combine(IN_BAND, FROM_BMC, "redfish")
    assert hardware.inventory["cpu"] == {"count": 64, "architecture": "x86_64", "model_name": "Xeon"}
    assert hardware.sources["cpu.count"] == "agent"
    assert hardware.sources["cpu.model_name"] == "redfish"
    assert hardware.sources["system_vendor.product_name"] == "redfish"


def test_where_they_differ_both_are_reported() -> None:
    assert combine(IN_BAND, FROM_BMC, "redfish").differences == {"cpu.count": {"agent": 64, "redfish": 32}}


def test_nics_are_matched_by_mac_and_disks_by_serial() -> None:
    hardware = combine(IN_BAND, FROM_BMC, "redfish")
    first, second = hardware.inventory["interfaces"]
    assert (first["name"], first["speed_mbps"]) == ("eno1", 25000)
    assert second["mac_address"] == "aa:bb:cc:00:00:02"
    assert hardware.sources["interfaces[aa:bb:cc:00:00:01].speed_mbps"] == "redfish"
    assert hardware.inventory["disks"] == [{"name": "/dev/sda", "serial": "S1", "size": 10, "model": "M"}]


def test_a_mac_in_other_letters_is_no_difference() -> None:
    assert not any("mac_address" in path for path in combine(IN_BAND, FROM_BMC, "redfish").differences)


def test_one_view_alone_has_one_source() -> None:
    hardware = combine({}, FROM_BMC, "redfish")
    assert hardware.inventory == FROM_BMC
    assert set(hardware.sources.values()) == {"redfish"}
    assert hardware.differences == {}


@given(ours=st.dictionaries(st.sampled_from(["interfaces", "disks", "cpu"]), _documents), theirs=_documents)
def test_nothing_crashes_it_and_nothing_is_changed(ours: dict[str, Any], theirs: Any) -> None:
    other = theirs if isinstance(theirs, dict) else {}
    before = copy.deepcopy((ours, other))
    combine(ours, other, "redfish")
    assert (ours, other) == before


def test_a_long_name_is_not_in_the_path_of_each_value_below_it() -> None:
    """Of 1 MB, with 190,000 values below it, the paths would need 190 GB."""
    below = {str(number): number for number in range(1, 30_000)}
    found = combine({"x" * 100_000: below}, {}, "redfish")
    assert found.inventory == {"x" * 100_000: below}
    assert sum(map(len, found.sources)) < 10_000_000
