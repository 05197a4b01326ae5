"""HPE ProCurve and Comware, Dell Force10 and OS10, Netgear and UniFi.

Sources: ProCurve: the port number as a local text (chall32/LDWin#6); Comware: long names and an empty port description,
LLDP-MED; Force10 S6000: names such as fortyGigE0/0 (sonic-net/SONiC#116); Dell blade switches and OS10: DCBX
(IEEE 802.1Qaz), and a chassis MAC that is written out as text (as in secdev/scapy#1201); Netgear ProSafe: an OID
"broadcom" and padding behind the end (chall32/LDWin#6, systemd/systemd#6150); UniFi: MAU type 0 (andkrau/LinkSkippy#1).
"""

from __future__ import annotations

from ferroscope_client.lldp import SwitchLink
from tests.fast.lldp.switches import (
    END,
    TTL,
    Switch,
    capabilities,
    chassis,
    dot1,
    dot3,
    management,
    med,
    port,
    raw_mac,
    text,
)  # fmt: skip

SWITCHES = [
    Switch(
        "procurve",
        (
            chassis("02:00:15:60:00:01"), port("18", subtype=7), TTL, text(4, "18"), text(5, "procurve-61"),
            text(6, "ProCurve J9021A Switch 2810-24G, revision N.11.25"), capabilities(0x14, 0x04),
            management(bytes([192, 0, 2, 61]), number=0), END,
        ),
        SwitchLink("02:00:15:60:00:01", "18", "procurve-61"),
        {
            "switch_chassis_id": "02:00:15:60:00:01", "switch_port_id": "18", "switch_port_description": "18",
            "switch_system_name": "procurve-61",
            "switch_system_description": "ProCurve J9021A Switch 2810-24G, revision N.11.25",
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge"],
            "switch_mgmt_addresses": ["192.0.2.61"],
        },
    ),
    Switch(
        "comware",
        (
            chassis("02:00:0f:e2:00:01"), port("Ten-GigabitEthernet1/0/5"), TTL, (4, b""), text(5, "HPE"),
            capabilities(0x14, 0x14), management(raw_mac("02:00:0f:e2:00:01"), number=7), dot1(1, b"\x00\x01"),
            dot1(2, b"\x00\x00\x00"), dot1(4, bytes.fromhex("0588cc000000")), dot3(1, b"\x03\x00\x00\x00\x21"),
            dot3(4, b"\x06\x00"), med(1, b"\x00\x01\x04"), END,
        ),
        SwitchLink("02:00:0f:e2:00:01", "Ten-GigabitEthernet1/0/5", "HPE"),
        {
            "switch_chassis_id": "02:00:0f:e2:00:01", "switch_port_id": "Ten-GigabitEthernet1/0/5",
            "switch_port_description": "", "switch_system_name": "HPE",
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge", "Router"],
            "switch_mgmt_addresses": ["02:00:0f:e2:00:01"], "switch_port_untagged_vlan_id": 1,
            "switch_port_protocol_vlan_enabled": False, "switch_port_protocol_vlan_support": False,
            "switch_port_protocol_vlan_ids": [0], "switch_protocol_identities": ["88cc000000"],
            "switch_port_autonegotiation_enabled": True, "switch_port_autonegotiation_support": True,
            "switch_port_physical_capabilities": [], "switch_port_mau_type": "10GBASE-R", "switch_port_mtu": 1536,
        },
    ),
    Switch(
        "force10",
        (chassis("02:00:b1:1c:00:01"), port("fortyGigE 0/0"), TTL, text(5, "S6000"), dot3(4, b"\x05\xee"), END),
        SwitchLink("02:00:b1:1c:00:01", "fortyGigE 0/0", "S6000"),
        {
            "switch_chassis_id": "02:00:b1:1c:00:01", "switch_port_id": "fortyGigE 0/0",
            "switch_system_name": "S6000", "switch_port_mtu": 1518,
        },
    ),
    Switch(
        "os10",
        (
            (1, b"\x0402:00:B1:1C:00:02"), port("ethernet1/1/1"), TTL, text(5, "OS10"),
            dot1(9, bytes(21)), dot1(11, b"\x08\x08"), dot1(12, b"\x00\x03\x89\x06"), (127, b"\xf8\xb1\x56\x01\x00"),
            END,
        ),
        SwitchLink("02:00:b1:1c:00:02", "ethernet1/1/1", "OS10"),
        {
            "switch_chassis_id": "02:00:b1:1c:00:02", "switch_port_id": "ethernet1/1/1", "switch_system_name": "OS10",
        },
    ),
    Switch(
        "netgear",
        (
            chassis("02:00:b0:5d:00:01"), port("g1", subtype=7), TTL,
            management(bytes([192, 168, 1, 253]), number=13, oid=b"broadcom"), END, END, END,
            (101, b"\xca\xfe\xba\xbe"), (5, b"junk"), END,
        ),
        SwitchLink("02:00:b0:5d:00:01", "g1", None),
        {
            "switch_chassis_id": "02:00:b0:5d:00:01", "switch_port_id": "g1",
            "switch_mgmt_addresses": ["192.168.1.253"],
        },
    ),
    Switch(
        "unifi",
        (
            chassis("02:00:ec:da:00:01"), port("Port 7", subtype=7), TTL, text(4, "DESKTOP"),
            text(5, "switch-upstairs"), text(6, "US-8-60W, 7.1.26.15869, Linux 3.6.5"), capabilities(0x04, 0x04),
            dot3(1, b"\x03\x00\x01\x00\x00"), med(1, b"\x00\x13\x04"), END,
        ),
        SwitchLink("02:00:ec:da:00:01", "Port 7", "switch-upstairs"),
        {
            "switch_chassis_id": "02:00:ec:da:00:01", "switch_port_id": "Port 7",
            "switch_port_description": "DESKTOP", "switch_system_name": "switch-upstairs",
            "switch_system_description": "US-8-60W, 7.1.26.15869, Linux 3.6.5",
            "switch_capabilities_support": ["Bridge"], "switch_capabilities_enabled": ["Bridge"],
            "switch_port_autonegotiation_enabled": True, "switch_port_autonegotiation_support": True,
            "switch_port_physical_capabilities": ["1000BASE-T fdx"], "switch_port_mau_type": "Unknown",
        },
    ),
]  # fmt: skip
