"""What changed between two inventories, and what did not."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ferroscope.hardware import diff, search_index
from ferroscope_sim.inventory.body import document

Data = tuple[dict[str, Any], dict[str, Any]]


def machine(index: int = 7) -> Data:
    """Return a simulated machine with memory modules."""
    body = document(index, size=40_000)
    return body.pop("inventory"), body


def changed(**edit: Any) -> list[diff.HardwareChange]:
    """Compare a machine with itself after ``edit``: functions of inventory and plugin data."""
    before = machine()
    after = copy.deepcopy(before)
    for change in edit.values():
        change(*after)
    return diff.compare(before, after)


def told(changes: list[diff.HardwareChange]) -> list[tuple[str, str]]:
    return [(change.what, change.kind) for change in changes]


def test_a_machine_that_says_the_same_in_another_order_has_not_changed() -> None:
    def shuffle(inventory: dict[str, Any], extra: dict[str, Any]) -> None:
        inventory["interfaces"].reverse()
        inventory["disks"].reverse()
        extra["dmi"]["memory"]["devices"].reverse()

    assert changed(edit=shuffle) == []


def test_a_dimm_went_and_memory_with_it() -> None:
    def edit(inventory: dict[str, Any], extra: dict[str, Any]) -> None:
        gone = extra["dmi"]["memory"]["devices"].pop(2)
        inventory["memory"]["physical_mb"] -= 1024 * int(gone["Size"].split()[0])

    memory, dimm = changed(edit=edit)
    assert (memory.what, memory.field) == ("changed", "memory")
    assert "GiB -> " in memory.text
    assert (dimm.what, dimm.kind) == ("removed", "dimm")
    assert dimm.text.startswith("DIMM ")
    assert " is gone: " in dimm.text


def test_a_nic_came() -> None:
    nic = {"name": "eth9", "mac_address": "02:00:00:00:00:99", "vendor": "0x15b3", "speed_mbps": 25000}
    (change,) = changed(edit=lambda inventory, _: inventory["interfaces"].append(nic))
    assert change.what == "added"
    assert change.text == "NIC eth9 is new: 02:00:00:00:00:99, 0x15b3, 25 Gbit/s"


def test_a_nic_that_was_only_renamed_is_the_same() -> None:
    assert changed(edit=lambda inventory, _: inventory["interfaces"][0].update(name="renamed0")) == []


def test_a_disk_with_another_serial_in_the_same_place_was_replaced() -> None:
    def edit(inventory: dict[str, Any], _: Any) -> None:
        inventory["disks"][0].update(serial="NEW-1", wwn=None, wwn_with_extension=None)

    (change,) = changed(edit=edit)
    assert (change.what, change.kind) == ("replaced", "disk")
    assert change.text.endswith("serial NEW-1")


def test_a_disk_that_moved_to_another_name_is_the_same() -> None:
    disks = [{"name": f"/dev/sd{letter}", "serial": f"S{letter}", "size": 10**12} for letter in "ab"]
    moved = [disks[0] | {"name": "/dev/sdb"}, disks[1] | {"name": "/dev/sda"}]
    assert diff.compare(({"disks": disks}, {}), ({"disks": moved}, {})) == []


def test_firmware_was_updated_and_the_processor_exchanged() -> None:
    def edit(inventory: dict[str, Any], extra: dict[str, Any]) -> None:
        inventory["system_vendor"]["firmware"] = {"version": "9.9.9"}
        inventory["cpu"].update(model_name="Another CPU", count=6)

    firmware, model, count = changed(edit=edit)
    assert firmware.text.endswith("-> 9.9.9")
    assert (model.kind, model.field, model.after) == ("cpu", "model", "Another CPU")
    assert count.text.endswith("-> 6")


def test_a_link_that_went_down_is_reported_by_its_nic() -> None:
    def edit(inventory: dict[str, Any], _: Any) -> None:
        nic = next(nic for nic in inventory["interfaces"] if nic["has_carrier"])
        nic["has_carrier"] = False

    (change,) = changed(edit=edit)
    assert change.text.endswith(": link yes -> no")


def test_serials_that_several_disks_share_identify_none() -> None:
    disks = [{"name": f"/dev/sd{letter}", "serial": "000", "size": 10**12} for letter in "abc"]
    before: Data = ({"disks": disks}, {})
    after: Data = ({"disks": [disks[0], disks[2]]}, {})
    assert told(diff.compare(before, after)) == [("removed", "disk")]


def test_the_opposite_direction_tells_the_opposite() -> None:
    one, other = machine(7), machine(8)
    there = diff.compare(one, other)
    back = diff.compare(other, one)
    opposite = {"added": "removed", "removed": "added", "changed": "changed", "replaced": "replaced"}
    assert sorted((opposite[change.what], change.kind) for change in there) == sorted(told(back))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "interfaces", "disks", "cpu", "memory", "system_vendor", "firmware", "boot", "dmi", "devices", "extra",
    "pci_devices", "all_interfaces", "lldp_processed", "parsed_lldp", "name", "mac_address", "serial", "Size",
    "Speed", "class", "size", "bank:0", "eth0", "frequency", "count", "physical_mb", "vendor", "has_carrier",
    "speed_mbps", "wwn", "Locator",
)  # fmt: skip
odd = st.recursive(
    json | st.sampled_from(("16 GB", "eth0", "0302", "1e400", "9" * 40, "0x8086")) | st.integers(10**300, 10**320),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=300, deadline=None)
@given(before=odd, after=odd, extra=odd)
def test_whatever_a_ramdisk_sends_can_be_compared_and_searched(before: Any, after: Any, extra: Any) -> None:
    for change in diff.compare((before, extra), (after, extra)):
        msgspec.json.encode(change)
    found = search_index.learn(before, extra)
    assert found == search_index.learn(before, extra)
    msgspec.json.encode(found.summary)
    for row in found.rows:
        texts = [value for value in msgspec.structs.astuple(row) if isinstance(value, str)]
        assert all(len(text) <= search_index.MAX_TEXT and text == text.rstrip() for text in texts)
