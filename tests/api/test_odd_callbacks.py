"""One odd value of a machine's firmware costs nothing but itself: its data is accepted, processed and kept.

What cannot be accepted is on the node at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.config.options import InspectorSettings
from ferroscope_client.core.states import State
from tests.api import working
from tests.api.service import Service, callback_body, caller

BAD = "\N{REPLACEMENT CHARACTER}"
HOOKS = "ramdisk-error,validate-interfaces,ports,architecture,cpus,memory,boot-mode,parse-lldp,local-link-connection"


class Site:
    """A service with a real worker, and a node that waits for its machine."""

    def __init__(self, url: str) -> None:
        self.service = Service(url, sections={"inspector": InspectorSettings(hooks=tuple(HOOKS.split(",")))})
        self.worker = working.worker(self.service)
        self.node = self.service.enrol()
        self.mac = self.service.wait(self.node)

    def call(self, *changes: tuple[str, bytes], **inventory: Any) -> Any:
        """Call back with a body in which these texts are replaced by these bytes."""
        raw = json.dumps(callback_body(self.mac, **inventory)).encode()
        for text, odd in changes:
            assert json.dumps(text).encode() in raw
            raw = raw.replace(json.dumps(text).encode(), odd)
        return self.service.call_back(raw)

    def inspected(self) -> dict[str, Any]:
        """Process the callback; return the inventory as the API shows it."""
        working.work(self.service, self.node, self.worker)
        node = self.service.node(self.node)
        assert (node.state, node.last_error) == (State.FINISHED, None)
        found: dict[str, Any] = self.service.bare_metal.get(f"/v1/nodes/{self.node}/inventory").json["inventory"]
        return found

    def entries(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.service.bare_metal.get(f"/v1/nodes/{self.node}/timeline").json[
            "inspections"
        ][0]["entries"]
        return found

    def noted(self) -> str:
        (entry,) = [entry for entry in self.entries() if entry["step"] == "callback-cleaned"]
        return str(entry["message"])


@pytest.fixture
def site(sqlite_url: str) -> Site:
    return Site(sqlite_url)


@pytest.mark.parametrize(
    ("odd", "shown", "used"),
    [
        (rb'"ABC123\u0000\u0000"', "ABC123\0\0", "ABC123"),
        (rb'"ABC\u001b[0m\u0001"', "ABC\x1b[0m\x01", f"ABC{BAD}[0m"),
        (b'"ABC\x1b\n123"', "ABC\x1b\n123", f"ABC{BAD}\n123"),
        (b'"Intel\xae Xeon\xae"', f"Intel{BAD} Xeon{BAD}", f"Intel{BAD} Xeon"),
        (rb'"Intel\udcae"', f"Intel{BAD}", "Intel"),
        (b'"SN-\xf0\x9f\x98\x80"', "SN-😀", "SN-😀"),
    ],
)
def test_an_odd_text_is_kept_cleaned_and_noted(site: Site, odd: bytes, shown: str, used: str) -> None:
    """In a serial number, by which the machine is recognized; a model, which is searched for; and a name of a NIC."""
    vendor = {"serial_number": "odd", "product_name": "odd"}
    answers = [site.call(("odd", odd), system_vendor=vendor, hostname="odd") for _ in range(2)]
    assert {caller(answer) for answer in answers} == {site.node}
    assert site.inspected()["system_vendor"] == {"serial_number": shown, "product_name": shown}
    node = site.service.node(site.node)
    assert (node.internal["machine_identity"]["serial"], node.hardware["product"]) == (used, used)
    if shown != "SN-😀":
        assert "inventory.system_vendor.serial_number" in site.noted()
    site.service.wait(site.node, mac=site.mac)  # the same machine, which is not held, and has not changed
    assert caller(site.call(("odd", odd), system_vendor=vendor, hostname="odd", bmc_address=None)) == site.node
    site.inspected()
    assert "hardware-changed" not in [entry["step"] for entry in site.entries()]


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        (b"NaN", "NaN"),
        (b"1e999", "1e999"),
        (b"9" * 5000, "9" * 5000),
        (str(2**70).encode(), 2**70),
    ],
)
def test_an_odd_number_costs_nothing_but_itself(site: Site, odd: bytes, shown: Any) -> None:
    disks = [{"name": "/dev/sda", "size": "odd"}, {"name": "/dev/sdb", "size": 10**12}]
    caller(site.call(("odd", odd), disks=disks, number="odd"))
    assert site.inspected()["number"] == shown


@pytest.mark.parametrize("nic", [{"name": "usb0", "mac_address": None}, {"mac_address": 5}, "eth9"])
def test_a_nic_without_a_mac_is_passed_over(site: Site, nic: Any) -> None:
    interfaces = [nic, {"name": "eth0", "mac_address": site.mac.upper() + "\0"}, nic]
    caller(site.call(interfaces=interfaces))
    assert site.inspected()["interfaces"] == interfaces
    assert "interfaces without a MAC address" in site.noted()
    (port,) = site.service.bare_metal.get(f"/v1/ports?node={site.node}").json["ports"]
    assert port["address"] == site.mac


def test_odd_values_beside_the_inventory_cost_nothing_either(site: Site) -> None:
    body = callback_body(site.mac, bmc_address={"v4": "192.0.2.1"}, boot=[], system_vendor="ACME")
    body |= {"boot_interface": 5, "error": "\0", "data": "\ud800", "lldp_raw": None, "key\0": ["\x1b"]}
    caller(site.service.call_back(json.dumps(body)))
    site.inspected()
    assert "bmc_address is not an address" in site.noted()


def test_hooks_and_ports_get_clean_texts(site: Site) -> None:
    frame = [[1, "0452540000dd01"], [2, "054769312f302f31000000"], [5, "6c6561660000"]]
    caller(
        site.call(
            ("x86_64", b'"x86_64\x00"'),
            interfaces=[{"name": "eth0", "mac_address": site.mac, "lldp": frame}],
            boot={"current_boot_mode": "uefi\0", "pxe_interface": site.mac + "\0"},
        )
    )
    site.inspected()
    properties = site.service.node(site.node).properties
    assert (properties["cpu_arch"], properties["capabilities"]) == ("x86_64", "boot_mode:uefi")
    (port,) = site.service.bare_metal.get(f"/v1/ports/detail?node={site.node}").json["ports"]
    assert port["local_link_connection"] == {
        "switch_id": "52:54:00:00:dd:01",
        "port_id": "Gi1/0/1",
        "switch_info": "leaf",
    }
    assert port["pxe_enabled"] is True


def test_a_body_is_repeated_and_different_by_what_was_sent(site: Site) -> None:
    for odd in (b'"A\xae"', b'"A\xaf"'):
        caller(site.call(("odd", odd), hostname="odd"))
    assert len(site.service.pending(site.node)) == 2


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda raw: raw[:-5], "not valid JSON"),
        (lambda raw: raw.replace(b'"interfaces"', b'"nics"'), "interfaces"),
        (lambda raw: raw[:-1] + b', "deep": ' + b"[" * 40 + b"]" * 40 + b"}", "nested too deeply"),
        (lambda raw: raw.replace(b'"count"', b'"\x00' + b"\xff" * 20_000 + b'"'), "not valid JSON"),
    ],
)
def test_what_is_refused_is_on_the_node_at_once(service: Service, spoil: Callable[[bytes], bytes], words: str) -> None:
    node = service.enrol()
    mac = service.wait(node)
    raw = json.dumps(callback_body(mac)).encode()
    assert service.call_back(spoil(raw)).status_code == 400
    shown = service.bare_metal.get(f"/v1/nodes/{node}").json
    assert shown["provision_state"] == "inspect wait"
    assert words in shown["last_error"]
    assert "callback-invalid" in shown["last_error"]
    entries = service.bare_metal.get(f"/v1/nodes/{node}/timeline").json["inspections"][0]["entries"]
    assert words in next(entry["message"] for entry in entries if entry["step"] == "callback-refused")
    assert caller(service.call_back(raw)) == node  # the ramdisk was repaired
    assert service.bare_metal.get(f"/v1/nodes/{node}").json["last_error"] is None


def test_each_reason_is_on_the_timeline_and_repetitions_are_not(service: Service, waiting: tuple[str, str]) -> None:
    node, mac = waiting
    other = service.enrol()
    other_mac = service.wait(other)
    for _ in range(5):
        assert service.call_back(json.dumps(callback_body(mac))[:-5]).status_code == 400
        ambiguous = callback_body(mac, other_mac) | {"boot_interface": None}
        assert service.call_back(ambiguous).status_code == 404
    for ident in (node, other):
        entries = service.bare_metal.get(f"/v1/nodes/{ident}/timeline").json["inspections"][0]["entries"]
        reasons = [entry["reason"] for entry in entries if entry["step"] == "callback-refused"]
        assert sorted(reasons) == (["callback-invalid", "lookup-ambiguous"] if ident == node else ["lookup-ambiguous"])
        assert "lookup-ambiguous" in service.bare_metal.get(f"/v1/nodes/{ident}").json["last_error"]


def test_a_refused_lookup_and_a_refused_heartbeat_are_on_the_node_too(
    service: Service, waiting: tuple[str, str]
) -> None:
    node, mac = waiting
    other = service.enrol()
    other_mac = service.wait(other)
    assert service.bare_metal.get(f"/v1/lookup?addresses={mac},{other_mac}").status_code == 404
    beat = {"callback_url": "http://192.0.2.7:9999", "agent_token": "wrong"}
    assert service.bare_metal.post(f"/v1/heartbeat/{node}", beat).status_code == 404
    entries = service.bare_metal.get(f"/v1/nodes/{node}/timeline").json["inspections"][0]["entries"]
    reasons = {entry["reason"] for entry in entries if entry["step"] == "ramdisk-refused"}
    assert reasons == {"lookup-ambiguous", "callback-unproven"}
    assert "wrong token" in service.bare_metal.get(f"/v1/nodes/{node}").json["last_error"]


def test_a_refusal_is_no_error_of_a_node_that_waits_for_nothing(service: Service, waiting: tuple[str, str]) -> None:
    node, mac = waiting
    body = callback_body(mac)
    caller(service.call_back(body))
    service.finish(node)
    assert service.call_back(callback_body(mac, serial="2")).status_code == 404
    assert service.node(node).last_error is None


@pytest.mark.parametrize(
    ("where", "interfaces"), [("boot_interface", [{}]), ("pxe_interface", [{"name": "eth0", "mac_address": "N/A"}])]
)
def test_a_machine_none_of_whose_nics_has_a_mac_is_known_by_the_one_that_it_booted_from(
    site: Site, where: str, interfaces: list[Any]
) -> None:
    body = callback_body(site.mac, interfaces=interfaces, bmc_address="192.0.2.1")
    body["boot_interface"] = "01-" + site.mac.upper().replace(":", "-") if where == "boot_interface" else None
    body["inventory"]["boot"] = {"pxe_interface": site.mac if where == "pxe_interface" else None}
    assert caller(site.service.call_back(json.dumps(body).encode())) == site.node


@pytest.mark.parametrize("interfaces", [None, []])
def test_a_refused_inventory_without_nics_is_on_the_node_that_the_boot_nic_belongs_to(
    site: Site, interfaces: Any
) -> None:
    answer = site.service.call_back(json.dumps(callback_body(site.mac, interfaces=interfaces)).encode())
    assert answer.status_code == 400
    assert "interfaces" in str(site.service.node(site.node).last_error)
