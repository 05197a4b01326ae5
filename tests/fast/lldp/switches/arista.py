"""Arista EOS, and SONiC, which runs on many makes of switches.

Sources: what EOS itself shows of TLVs (opnsense/plugins#4561) and sends to others (sonic-net/sonic-utilities#3358);
port descriptions and local port IDs of SONiC (sonic-net/sonic-buildimage#1457, #11008); a MAU type that is newer than
RFC 4836, as ports of 25 and 100 Gbit/s have (IANA-MAU-MIB).
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
    port,
    text,
)  # fmt: skip

EOS = "Arista Networks EOS version 4.30.1F running on an Arista Networks DCS-7050SX3-48YC8"

SWITCHES = [
    Switch(
        "eos",
        (
            chassis("02:00:1c:73:00:01"), port("Ethernet31"), TTL, text(5, "leaf-31"), text(6, EOS),
            capabilities(0x14, 0x14), management(bytes([192, 0, 2, 31]), number=999001), dot1(1, b"\x03\xe8"),
            dot1(7, b"\x03\x00\x00\x00\x0d"), dot3(1, b"\x00\x00\x00\x00\x58"), dot3(4, b"\x24\x12"), END,
        ),
        SwitchLink("02:00:1c:73:00:01", "Ethernet31", "leaf-31"),
        {
            "switch_chassis_id": "02:00:1c:73:00:01", "switch_port_id": "Ethernet31", "switch_system_name": "leaf-31",
            "switch_system_description": EOS, "switch_capabilities_support": ["Bridge", "Router"],
            "switch_capabilities_enabled": ["Bridge", "Router"], "switch_mgmt_addresses": ["192.0.2.31"],
            "switch_port_untagged_vlan_id": 1000, "switch_port_link_aggregation_enabled": True,
            "switch_port_link_aggregation_support": True, "switch_port_link_aggregation_id": 13,
            "switch_port_autonegotiation_enabled": False, "switch_port_autonegotiation_support": False,
            "switch_port_physical_capabilities": [], "switch_port_mau_type": "25GBASE-CR", "switch_port_mtu": 9234,
        },
    ),
    Switch(
        "sonic",
        (
            chassis("02:00:90:6d:00:01"), port("Ethernet112", subtype=7), TTL, text(4, "ARISTA01T1:Ethernet1"),
            text(5, "str-msn2700-04"), text(6, "Debian GNU/Linux 8 (jessie) Linux 3.16.0-4-amd64"),
            capabilities(0x9C, 0x14), management(bytes([10, 1, 0, 32])), dot3(1, b"\x00\x00\x00\x00\x8d"), END,
        ),
        SwitchLink("02:00:90:6d:00:01", "Ethernet112", "str-msn2700-04"),
        {
            "switch_chassis_id": "02:00:90:6d:00:01", "switch_port_id": "Ethernet112",
            "switch_port_description": "ARISTA01T1:Ethernet1", "switch_system_name": "str-msn2700-04",
            "switch_system_description": "Debian GNU/Linux 8 (jessie) Linux 3.16.0-4-amd64",
            "switch_capabilities_support": ["Bridge", "WLAN", "Router", "Station only"],
            "switch_capabilities_enabled": ["Bridge", "Router"], "switch_mgmt_addresses": ["10.1.0.32"],
            "switch_port_autonegotiation_enabled": False, "switch_port_autonegotiation_support": False,
            "switch_port_physical_capabilities": [], "switch_port_mau_type": "MAU type 141",
        },
    ),
]  # fmt: skip
