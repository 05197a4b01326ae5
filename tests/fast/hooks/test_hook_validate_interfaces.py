"""``validate-interfaces``: what it writes into the plugin data, for every ``add_ports``."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.core.lookup import MAX_INTERFACES
from ferroscope.core.model import Severity
from ferroscope.hooks.base import HookError
from ferroscope_client.core.reasons import Reason
from tests.fast.hooks.runs import ETH0, ETH1, ETH2, Run, machine, run
from tests.support.rows import each

HOOK = ["validate-interfaces"]


def valid(add_ports: str = "pxe", **changes: Any) -> list[str]:
    return sorted(run(HOOK, machine(**changes), add_ports=add_ports).plugin_data["valid_interfaces"])


def refusal(add_ports: str = "pxe", **changes: Any) -> HookError:
    with pytest.raises(HookError) as info:
        run(HOOK, machine(**changes), add_ports=add_ports)
    assert info.value.reason is Reason.INVALID_INVENTORY
    return info.value


def nic(name: object = "eth9", mac: object = "aa:bb:cc:00:00:09", **fields: Any) -> dict[str, Any]:
    return {"name": name, "mac_address": mac, **fields}


def warnings(result: Run) -> list[str]:
    return [note.message for note in result.notes if note.severity is Severity.WARNING]


def test_the_records_are_the_inventorys_with_a_few_keys_made_uniform() -> None:
    inventory = machine()
    data = run(HOOK, inventory).plugin_data
    assert data["all_interfaces"] == {
        "eth0": {
            **inventory["interfaces"][1],
            "mac_address": ETH0,
            "ipv6_address": "fe80::1",
            "pxe_enabled": True,
        },
        "eth1": {**inventory["interfaces"][2], "mac_address": ETH1, "pxe_enabled": False},
        "eth2": {**inventory["interfaces"][3], "mac_address": ETH2, "pxe_enabled": False},
    }
    assert data["valid_interfaces"] == {"eth0": data["all_interfaces"]["eth0"]}
    assert data["macs"] == [ETH0]


def test_what_the_ramdisk_sent_under_these_names_is_replaced() -> None:
    sent = {"all_interfaces": {"evil": {}}, "valid_interfaces": "x", "macs": ["00:11:22:33:44:55"], "other": 1}
    data = run(HOOK, machine(), sent).plugin_data
    assert set(data["all_interfaces"]) == {"eth0", "eth1", "eth2"}
    assert data["macs"] == [ETH0]
    assert data["other"] == 1


@each(
    "spelling",
    [
        "aa:bb:cc:00:00:02",
        "AA:BB:CC:00:00:02",
        "aa-bb-cc-00-00-02",
        "01-aa-bb-cc-00-00-02",
        "01-AA-BB-CC-00-00-02",
    ],
)
def test_the_boot_interface_is_known_in_every_spelling(spelling: str) -> None:
    assert valid(boot={"pxe_interface": spelling}) == ["eth1"]


@each("value", ["eth0", 5, ["aa:bb:cc:00:00:02"], "x" * 10_000])
def test_a_boot_interface_that_is_no_mac_counts_as_not_known_with_a_warning(value: object) -> None:
    result = run(HOOK, machine(boot={"pxe_interface": value}))
    assert sorted(result.plugin_data["valid_interfaces"]) == ["eth0", "eth1", "eth2"]
    (warning,) = warnings(result)
    assert "boot.pxe_interface" in warning
    assert len(warning) < 300


def test_interfaces_without_an_address_are_not_active() -> None:
    error = refusal("active", interfaces=[nic(ipv4_address=None), nic("eth8", "aa:bb:cc:00:00:08", ipv4_address="x")])
    assert "eth9 (no IP address), eth8 (no IP address)" in error.message


@each("field", ["ipv4_address", "ipv6_address"])
@each("value", ["127.0.0.1", "127.9.9.9", "::1", "::1%lo"])
def test_an_interface_with_a_loopback_address_is_local(field: str, value: str) -> None:
    if field == "ipv4_address" and "%" in value:
        value = "::1"
    assert "eth9 (local)" in refusal("all", interfaces=[nic(**{field: value})]).message


@each("value", [None, 5, [], {}, True])
def test_an_address_of_a_wrong_type_is_none(value: object) -> None:
    data = run(HOOK, machine(interfaces=[nic(ipv6_address=value)]), add_ports="all").plugin_data
    assert data["all_interfaces"]["eth9"]["ipv6_address"] is None


@each("mac", ["", None, "00:00:00:00:00:00", "FF-FF-FF-FF-FF-FF"])
def test_an_interface_without_a_mac_is_passed_over_in_silence(mac: object) -> None:
    result = run(HOOK, machine(interfaces=[nic("sit0", mac), nic()]), add_ports="all")
    assert list(result.plugin_data["all_interfaces"]) == ["eth9"]
    assert result.notes == []


@each(
    ("record", "complaint"),
    [
        (nic(mac="aa:bb"), "eth9 (invalid MAC address aa:bb)"),
        (nic(mac=17), "eth9 (invalid MAC address 17)"),
        (nic(name=None), "number 0 (no name)"),
        (nic(name=""), "number 0 (no name)"),
        (nic(name=["eth9"]), "number 0 (no name)"),
        (nic(name="x" * 256), "number 0 (its name has more than 255 characters)"),
        ({"mac_address": "aa:bb:cc:00:00:09"}, "number 0 (no name)"),
        ("eth9", "number 0 (not an object)"),
        (None, "number 0 (not an object)"),
        ([], "number 0 (not an object)"),
    ],
)
def test_a_malformed_interface_is_left_out_with_a_warning(record: object, complaint: str) -> None:
    result = run(HOOK, machine(interfaces=[record, nic("eth0", ETH0)]), add_ports="all")
    assert list(result.plugin_data["all_interfaces"]) == ["eth0"]
    assert warnings(result) == [f"ignored interfaces: {complaint}"]
    assert complaint in refusal("all", interfaces=[record]).message


def test_of_two_interfaces_with_one_name_the_later_counts_with_a_warning() -> None:
    result = run(HOOK, machine(interfaces=[nic("eth0", ETH1), nic("eth0", ETH0)]), add_ports="all")
    assert result.plugin_data["macs"] == [ETH0]
    assert "duplicate name" in warnings(result)[0]


@each("interfaces", [None, {}, "eth0", 5, True])
def test_an_inventory_without_a_list_of_interfaces_is_refused(interfaces: object) -> None:
    assert refusal(interfaces=interfaces).reason is Reason.INVALID_INVENTORY


def test_more_interfaces_than_any_machine_has_are_refused() -> None:
    many = [nic(f"eth{number}", f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}") for number in range(1, 2050)]
    assert len(valid("all", interfaces=many[:MAX_INTERFACES])) == MAX_INTERFACES
    assert "the inventory has 2,049 interfaces" in refusal("all", interfaces=many).message


def test_the_message_stays_short_whatever_the_inventory_holds() -> None:
    error = refusal("all", interfaces=[nic(f"{number}\x00{'x' * 200}", "y" * 10_000) for number in range(1000)])
    assert len(error.message) < 3000
    assert "and 990 more" in error.message
    assert error.message.isprintable()


@each("add_ports", ["all", "active", "pxe"])
def test_a_nic_that_many_machines_have_is_never_selected(add_ports: str) -> None:
    usb = nic("usb0", "BE-3A-F2-B6-05-9F", ipv4_address="169.254.3.1")
    for settings, found in (({}, False), ({"ignored_macs": ()}, True)):
        result = run(
            HOOK, machine(interfaces=[nic(ipv4_address="192.0.2.9"), usb], boot={}), add_ports=add_ports, **settings
        )
        assert "usb0" in result.plugin_data["all_interfaces"]
        assert ("usb0" in result.plugin_data["valid_interfaces"]) is found
    error = refusal(add_ports, interfaces=[usb])
    assert "ignored_macs" in error.message


def test_a_multicast_address_is_in_the_inventory_and_never_becomes_a_port() -> None:
    result = run(HOOK, machine(interfaces=[nic(), nic("fc0", "21:00:f4:00:11:22")], boot={}), add_ports="all")
    assert "fc0" in result.plugin_data["all_interfaces"]
    assert list(result.plugin_data["valid_interfaces"]) == ["eth9"]
