"""What a sync makes of machines in a real DCIM."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from ferroscope.contrib.dcim import rest
from ferroscope.contrib.dcim.machines import DcimInterface, InventoryItem
from ferroscope.contrib.dcim.writer import Report
from tests.support.dcim import Synced, machine
from tests.support.faulty_proxy import FaultyProxy

pytestmark = pytest.mark.timeout(3600)  # the schema, once


def named(report: Report) -> list[tuple[str, str]]:
    return [(one.kind, one.name) for one in report.changes]


def told(report: Report) -> set[tuple[str, str, str]]:
    return {(one.kind, one.name, one.code) for one in report.left}


def test_devices_become_as_the_machines_are_and_a_second_run_changes_nothing(
    dcim: Synced, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest, "ITEMS_PER_PAGE", 2)  # so that lists have several pages
    ports = dcim.add_switch(2)
    some = [machine(name, number, switch=dcim.switch) for number, name in ((1, "a1"), (2, "a2"))]
    planned = dcim.sync(*some, dry_run=True)
    assert set(dcim.devices()) == {dcim.switch}
    done = dcim.sync(*some)
    assert named(done) == named(planned)
    assert not done.left
    assert dcim.sync(*some) == Report()

    found = dcim.devices()["a1"]
    kind = dcim.real.call("GET", f"dcim/device-types/{found['device_type']['id']}/")
    assert (found["serial"], kind["model"]) == ("SN-a1", "PowerEdge R650")
    assert dcim.macs("a1") == {"eth0": ["52:54:00:00:01:00"], "eth1": ["52:54:00:00:01:01"]}
    items = dcim.parts("inventory-items", "a2")
    assert set(items) == {"/dev/sda", "A1", "B1"}
    assert (items["/dev/sda"]["part_id"], items["/dev/sda"]["serial"]) == ("PM1733", "S4YN-2")
    port = dcim.real.call("GET", f"dcim/interfaces/{ports['Ethernet2']}/")
    assert port["cable"]["id"] == dcim.parts("interfaces", "a2")["eth0"]["cable"]["id"]


def test_a_nic_and_a_disk_that_were_replaced_are_changed_where_they_are(dcim: Synced) -> None:
    before = machine("a1", 1)
    dcim.sync(before)
    nic, disk = DcimInterface("eth1", "52:54:00:ff:ff:01"), InventoryItem("/dev/sda", "PM1743", "NEW-1", "Samsung")
    after = msgspec.structs.replace(
        before, interfaces=(before.interfaces[0], nic), items=(disk, *before.items[1:])
    )  # fmt: skip
    report = dcim.sync(after)
    assert sorted(name for _, name in named(report)) == ["a1 /dev/sda", "a1 eth1"]
    assert all(one.before for one in report.changes)
    assert dcim.macs("a1") == {"eth0": ["52:54:00:00:01:00"], "eth1": ["52:54:00:ff:ff:01"]}
    assert dcim.sync(after) == Report()


def test_a_part_that_is_gone_is_reported_and_not_deleted(dcim: Synced) -> None:
    before = machine("a1")
    dcim.sync(before)
    report = dcim.sync(msgspec.structs.replace(before, items=before.items[:-1]))
    assert (report.changes, told(report)) == ([], {("inventory item", "a1 B1", "part-gone")})
    assert "B1" in dcim.parts("inventory-items", "a1")


def test_fields_of_others_stay_and_own_ones_are_corrected(dcim: Synced) -> None:
    dcim.sync(machine("a1"))
    ident = dcim.devices()["a1"]["id"]
    planned = "Planned" if dcim.real.name == "nautobot" else "planned"
    by_others = {**dcim.real.dialect.status(planned), "serial": "wrong", "comments": "do not touch"}
    dcim.real.call("PATCH", f"dcim/devices/{ident}/", json=by_others)
    (change,) = dcim.sync(machine("a1")).changes
    assert (change.kind, change.before, change.after) == ("device", {"serial": "wrong"}, {"serial": "SN-a1"})
    after = dcim.real.call("GET", f"dcim/devices/{ident}/", fields={"depth": 1})
    assert planned in after["status"].values()
    assert after["comments"] == "do not touch"


def test_objects_of_others_with_the_same_name_are_left_alone_and_reported(dcim: Synced) -> None:
    ports = dcim.add_switch(3)
    other = dcim.real.add_device(dcim.place, "a1", role="Switch", serial="theirs")
    own = dcim.real.add_device(dcim.place, "a2")
    by_hand = {"device": own, "name": "A1", "serial": "by hand"}
    dcim.real.call("POST", "dcim/inventory-items/", json=by_hand)
    elsewhere = dcim.real.add_interface(dcim.real.add_device(dcim.place, "pdu", role="Switch"), "mgmt")
    taken = dcim.real.dialect.cable(ports["Ethernet2"], elsewhere)
    dcim.real.call("POST", "dcim/cables/", json=taken)
    some = [machine("a1", 1), machine("a2", 2, switch=dcim.switch), machine("a3", 9, switch=dcim.switch)]
    report = dcim.sync(*some)
    assert told(report) == {
        ("device", "a1", "other-device"),
        ("inventory item", "a2 A1", "other-item"),
        ("cable", f"a2 eth0 - {dcim.switch} Ethernet2", "connected-elsewhere"),
        ("cable", f"a3 eth0 - {dcim.switch} Ethernet9", "unknown-port"),
    }
    found = dcim.devices()
    assert (found["a1"]["id"], found["a1"]["serial"]) == (other, "theirs")
    assert (found["a2"]["id"], found["a2"]["serial"]) == (own, "SN-a2")  # its owner has added it before
    assert dcim.parts("inventory-items", "a2")["A1"]["serial"] == "by hand"
    assert dcim.sync(*some) == msgspec.structs.replace(report, changes=[])


def test_an_object_that_is_refused_does_not_keep_the_others_from_being_created(dcim: Synced) -> None:
    some = [machine(f"a{number}", number) for number in (1, 2, 3)]
    bad = msgspec.structs.replace(some[1], interfaces=(DcimInterface("e" * 300, "52:54:00:00:02:00"),))
    report = dcim.sync(some[0], bad, some[2])
    assert told(report) == {("interface", f"a2 {'e' * 300}", "refused")}
    assert set(dcim.macs("a1")) == set(dcim.macs("a3")) == {"eth0", "eth1"}
    assert dcim.sync(*some).left == []


def test_a_renamed_node_keeps_its_device_and_a_machine_does_not_get_that_of_another(dcim: Synced) -> None:
    dcim.sync(machine("a1", 1), machine("a2", 2))
    before = {name: one["id"] for name, one in dcim.devices().items()}
    thief = machine("thief", 3, serial="SN-a1")
    dcim.sync(machine("b2", 2, serial="SN-a2"), thief, names=["a1"])
    after = {name: one["id"] for name, one in dcim.devices().items()}
    assert after.keys() == {"a1", "b2", "thief"}
    assert (after["a1"], after["b2"]) == (before["a1"], before["a2"])


def test_200_machines_take_few_calls_and_a_second_run_only_reads(dcim: Synced) -> None:
    dcim.add_switch(200)
    some = [machine(f"m{number:03}", number, switch=dcim.switch) for number in range(1, 201)]
    proxy = FaultyProxy(dcim.real.url)
    report = dcim.sync(*some, url=proxy.url)
    calls = Counter(seen.method for seen in proxy.seen)
    proxy.seen.clear()
    assert dcim.sync(*some, url=proxy.url) == Report()
    assert {seen.method for seen in proxy.seen} == {"GET"}
    proxy.close()
    kinds = Counter(one.kind for one in report.changes)
    print(f"{dcim.real.name}: {dict(kinds)}; calls: {dict(calls)}")
    assert (kinds["device"], kinds["interface"], kinds["inventory item"], kinds["cable"]) == (200, 400, 600, 200)
    assert len(dcim.devices()) == 201
    assert sum(calls.values()) < 200
