"""Catalyst and Nexus.

Sources: a capture of a Catalyst 9000 with IOS XE 16.9 (chall32/LDWin#21): subtype 5 with the short name, the port
description of the operator, LLDP-MED, interface numbering by system port; Catalyst 3750 with IOS 12.2 and 15.0, MAU
type 30, VLAN ID (ChartinoLabs/Muninn#1416, napalm-automation/napalm#1803); Nexus 7700 with NX-OS 8.2
(networktocode/ntc-templates#1167); a port ID that is filled with NUL to a fixed length (Uninett/nav#2215).
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
    text,
    vlan,
)  # fmt: skip

IOS = "Cisco IOS Software [Fuji], Catalyst L3 Switch Software (CAT9K_IOSXE), Version 16.9.1\nCompiled Tue 17-Jul-18"

SWITCHES = [
    Switch(
        "catalyst-9000",
        (
            chassis("02:00:0c:00:01:00"), port("Gi1/0/11"), TTL, text(5, "sw-21.example.org"), text(6, IOS),
            text(4, "rack 21, machine 7"), capabilities(0x14, 0x04),
            management(bytes([192, 0, 2, 21]), subtype=3, number=0),
            med(1, b"\x00\x2f\x04"), med(4, b"\x03\x00\x00\x00"), dot1(1, b"\x00\x65"),
            dot3(1, b"\x03\x6c\x01\x00\x1e"), dot3(2, b"\x07\x01\x00"), END,
        ),
        SwitchLink("02:00:0c:00:01:00", "Gi1/0/11", "sw-21.example.org"),
        {
            "switch_chassis_id": "02:00:0c:00:01:00", "switch_port_id": "Gi1/0/11",
            "switch_system_name": "sw-21.example.org", "switch_system_description": IOS,
            "switch_port_description": "rack 21, machine 7", "switch_capabilities_support": ["Bridge", "Router"],
            "switch_capabilities_enabled": ["Bridge"], "switch_mgmt_addresses": ["192.0.2.21"],
            "switch_port_untagged_vlan_id": 101, "switch_port_autonegotiation_enabled": True,
            "switch_port_autonegotiation_support": True,
            "switch_port_physical_capabilities": [
                "1000BASE-T fdx", "100BASE-TX fdx", "100BASE-TX hdx", "10BASE-T fdx", "10BASE-T hdx",
            ],
            "switch_port_mau_type": "1000BASE-T full duplex",
        },
    ),
    Switch(
        "nul-padded",
        (
            chassis("02:00:0c:00:02:00"), (2, b"\x05Gi1/0/1\0\0\0"), TTL, (4, b"GigabitEthernet1/0/1\0"),
            (5, b"sw-22\0\0"), capabilities(0x14, 0x14), END,
        ),
        SwitchLink("02:00:0c:00:02:00", "Gi1/0/1", "sw-22"),
        {
            "switch_chassis_id": "02:00:0c:00:02:00", "switch_port_id": "Gi1/0/1",
            "switch_port_description": "GigabitEthernet1/0/1", "switch_system_name": "sw-22",
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge", "Router"],
        },
    ),
    Switch(
        "nexus",
        (
            chassis("02:00:0c:00:03:00"), port("Eth1/1"), TTL, text(4, "Ethernet1/1"), text(5, "leaf-1"),
            text(6, "Cisco Nexus Operating System (NX-OS) Software"), capabilities(0x14, 0x14),
            management(bytes([192, 0, 2, 22]), number=83886080),
            management(bytes.fromhex("20010db8000000000000000000000022"), number=83886080),
            dot1(1, b"\x00\x01"), vlan(1, "default"), dot3(1, b"\x00\x00\x00\x00\x36"), dot3(4, b"\x24\x0a"),
            (127, bytes.fromhex("00014201" "01")), END,
        ),
        SwitchLink("02:00:0c:00:03:00", "Eth1/1", "leaf-1"),
        {
            "switch_chassis_id": "02:00:0c:00:03:00", "switch_port_id": "Eth1/1",
            "switch_port_description": "Ethernet1/1", "switch_system_name": "leaf-1",
            "switch_system_description": "Cisco Nexus Operating System (NX-OS) Software",
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge", "Router"],
            "switch_mgmt_addresses": ["192.0.2.22", "2001:db8::22"], "switch_port_untagged_vlan_id": 1,
            "switch_port_vlans": [{"id": 1, "name": "default"}], "switch_port_autonegotiation_enabled": False,
            "switch_port_autonegotiation_support": False, "switch_port_physical_capabilities": [],
            "switch_port_mau_type": "10GBASE-T", "switch_port_mtu": 9226,
        },
    ),
]  # fmt: skip
