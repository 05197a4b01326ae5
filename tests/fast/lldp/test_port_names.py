"""Ports are called as people call them, and texts are without what switches put around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ferroscope.hardware.parts import parts
from ferroscope_client.lldp import Tlv, port_name, values
from tests.fast.lldp.switches import dot1, dot3, juniper, port, text, vlan
from tests.support.rows import each

JUNIPER = "https://github.com/Uninett/nav/issues/840"
ARUBA = "https://github.com/netbox-community/netbox/issues/11196"
AVAYA = "https://github.com/netbox-community/netbox/issues/5818"
PROCURVE = "https://github.com/dainok/netdoc/issues/116"
PEOPLE = "https://github.com/abdellbar1/ProxLLDPConfig/issues/7"
SONIC = "https://github.com/sonic-net/SONiC/issues/116"
STACK = "https://github.com/napalm-automation-community/napalm-arubaos-switch/issues/19"
CUMULUS = "https://github.com/lldpd/lldpd/issues/183"
PEER = "https://github.com/sonic-net/sonic-buildimage/issues/1457"
MAC = "00:05:33:aa:bb:37"


@each(
    ("ident", "description", "name", "source"),
    [
        ("528", "ge-0/0/11.0", "ge-0/0/11.0", JUNIPER),
        ("1088", "xe-0/0/1", "xe-0/0/1", JUNIPER),
        ("00000213", "xe-0/0/1", "xe-0/0/1", JUNIPER),
        ("106", "2/10", "2/10", ARUBA),
        ("3", "1/3", "1/3", STACK),
        ("136", "1/E8", "1/E8", PROCURVE),
        (MAC, "10GigabitEthernet1/3/5", "10GigabitEthernet1/3/5", AVAYA),
        (MAC, "Port 2", "Port 2", AVAYA),
        (MAC, "eth0", "eth0", AVAYA),
        ("192.0.2.1", "Ethernet Interface (12)", "Ethernet Interface (12)", AVAYA),
        (MAC, "", MAC, AVAYA),
        (MAC, None, MAC, SONIC),
        (MAC, "Ethernet64", "Ethernet64", CUMULUS),
        ("Ethernet112", "ARISTA01T1:Ethernet1", "Ethernet112", PEER),
        ("18", "18", "18", PROCURVE),
        ("18", "Uplink to the core", "18", PEOPLE),
        ("18", "web12", "18", PEOPLE),
        ("Gi1/0/1", "server 12, Gi9/9", "Gi1/0/1", PEOPLE),
        ("Ethernet1", "Ethernet2", "Ethernet1", PEOPLE),
        ("1/1/51", "2/2/2", "1/1/51", PEOPLE),
        ("A1", "port 3", "A1", PEOPLE),
        (None, "Uplink to the core", "Uplink to the core", PEOPLE),
        (" 528\r\n", "\0ge-0/0/11.0 \n", "ge-0/0/11.0", JUNIPER),
        (528, ["x"], None, JUNIPER),
        ("528", "1/" * 5000 + "1", "528", JUNIPER),
    ],
)
def test_a_port_has_the_name_that_its_switch_uses(
    ident: object, description: object, name: str | None, source: str
) -> None:
    assert port_name({"switch_port_id": ident, "switch_port_description": description}) == name


AROUND = ("\0", "\0\0\0", " ", "\n", "\r\n", " \r\n\0\0", "\t\0 \n")
TEXTS: dict[str, Callable[[bytes], tuple[int, bytes]]] = {
    "switch_chassis_id": lambda said: (1, b"\x07" + said),
    "switch_port_id": lambda said: (2, b"\x05" + said),
    "switch_port_description": lambda said: (4, said),
    "switch_system_name": lambda said: (5, said),
    "switch_system_description": lambda said: (6, said),
    "switch_port_vlans": lambda said: (127, b"\x00\x80\xc2\x03\x00\x64" + bytes([len(said)]) + said),
}


@each("name", TEXTS)
def test_no_text_keeps_what_is_around_it(name: str) -> None:
    for around in AROUND:
        for said in (f"leaf 1{around}", f" \n{('' if name.endswith('_id') else around)}leaf 1{around}"):
            found, problems = values([Tlv(*TEXTS[name](said.encode()))])
            expected: Any = [{"name": "leaf 1", "id": 100}] if name == "switch_port_vlans" else "leaf 1"
            assert (found[name], problems) == (expected, []), repr(said)


@each("number", [10, 13, 32, 0x20_0A, 531])
def test_an_index_in_bytes_is_no_text(number: int) -> None:
    raw = number.to_bytes(4, "big")
    assert values([Tlv(2, b"\x07" + raw)])[0]["switch_port_id"] == raw.hex()


def test_the_parts_of_a_machine_have_the_name_the_vlan_and_the_mtu() -> None:
    recorded = [juniper.SWITCHES[0].recorded, [[kind, value.hex()] for kind, value in (
        port("Gi1/0/1\0\0"), text(5, "leaf\n"), text(4, "to the rack"), vlan(7, "x"), dot1(1, b"\x00\x07"),
        dot3(4, b"\x23\x28"),
    )]]  # fmt: skip
    nics = [{"name": f"eth{number}", "lldp": one} for number, one in enumerate(recorded)]
    found = [one.fields for one in parts({"interfaces": nics}, {}) if one.kind == "nic"]
    assert [{name: one[name] for name in ("switch", "port", "vlan", "mtu")} for one in found] == [
        {"switch": "ex-41", "port": "ge-0/0/21.0", "vlan": 10, "mtu": 1514},
        {"switch": "leaf", "port": "Gi1/0/1", "vlan": 7, "mtu": 9000},
    ]
