"""Cumulus Linux, whose lldpd many other systems share, and MikroTik RouterOS.

Sources: captures of lldpd (lldpd/lldpd#183, #372, #729): capabilities 0x9c, two management addresses, a MAC or a local
text as port ID; Cumulus sends the interface name with subtype 5. MikroTik: port IDs with the bridge in front and a
platform text as system description (napalm-automation-community/napalm-ros#106, netdisco/netdisco#1495), system
capabilities that are not there at all, addresses 0.0.0.0.
"""

from __future__ import annotations

from ferroscope_client.lldp import SwitchLink
from tests.fast.lldp.switches import (
    END,
    TTL,
    Switch,
    capabilities,
    chassis,
    dot3,
    management,
    port,
    raw_mac,
    text,
)  # fmt: skip

CUMULUS = "Cumulus Linux version 5.5.1 running on Mellanox Technologies Ltd. MSN2010"
ROUTER_OS = "MikroTik RouterOS 7.5 (stable) Aug/30/2022 09:25:53 CRS328-24P-4S+"

SWITCHES = [
    Switch(
        "cumulus",
        (
            chassis("02:00:4b:00:00:01"), port("swp7"), TTL, text(5, "leaf-51"), text(6, CUMULUS),
            capabilities(0x14, 0x14), management(bytes([192, 0, 2, 51])),
            management(bytes.fromhex("fe800000000000000200004bfffe0001"), number=2), text(4, "swp7"),
            dot3(1, b"\x01\x00\x00\x00\x5c"), dot3(3, b"\x01\x00\x00\x00\x00"), dot3(4, b"\x24\x00"), END,
        ),
        SwitchLink("02:00:4b:00:00:01", "swp7", "leaf-51"),
        {
            "switch_chassis_id": "02:00:4b:00:00:01", "switch_port_id": "swp7", "switch_port_description": "swp7",
            "switch_system_name": "leaf-51", "switch_system_description": CUMULUS,
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge", "Router"],
            "switch_mgmt_addresses": ["192.0.2.51", "fe80::200:4b:fffe:1"],
            "switch_port_autonegotiation_enabled": False, "switch_port_autonegotiation_support": True,
            "switch_port_physical_capabilities": [], "switch_port_mau_type": "25GBASE-R",
            "switch_port_link_aggregation_enabled": False, "switch_port_link_aggregation_support": True,
            "switch_port_link_aggregation_id": 0, "switch_port_mtu": 9216,
        },
    ),
    Switch(
        "lldpd-mac-as-port",
        (
            (1, b"\x072102312BRA10J5000046"), (2, b"\x03" + raw_mac("02:00:e8:68:00:01")), TTL, text(5, "sds-3"),
            capabilities(0x9C, 0x80), END,
        ),
        SwitchLink(None, "02:00:e8:68:00:01", "sds-3"),
        {
            "switch_chassis_id": "2102312BRA10J5000046", "switch_port_id": "02:00:e8:68:00:01",
            "switch_system_name": "sds-3", "switch_capabilities_enabled": ["Station only"],
            "switch_capabilities_support": ["Bridge", "WLAN", "Router", "Station only"],
        },
    ),
    Switch(
        "mikrotik",
        (
            chassis("02:00:8f:5a:00:01"), port("bridge/ether3"), TTL, text(5, "sw 2F, Küche"), text(6, ROUTER_OS),
            management(bytes(4), number=0), END,
        ),
        SwitchLink("02:00:8f:5a:00:01", "bridge/ether3", "sw 2F, Küche"),
        {
            "switch_chassis_id": "02:00:8f:5a:00:01", "switch_port_id": "bridge/ether3",
            "switch_system_name": "sw 2F, Küche", "switch_system_description": ROUTER_OS,
            "switch_mgmt_addresses": ["0.0.0.0"],
        },
    ),
]  # fmt: skip
