"""Junos: the port ID is the SNMP index of the port by default, as a text of subtype 7; its name is in the description.

Sources: Uninett/nav#840 (local port IDs that are an ifIndex, the name in the port description), librenms/librenms#18318
(EX series), and Junos's documentation of ``show lldp neighbors``. The chassis sends its serial number in a TLV of its
own OUI (00:90:69). The binary port ID is a sibling of ours, after sonic-net/sonic-buildimage#24902.
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
    vlan,
)  # fmt: skip

OID = bytes.fromhex("060c2b0601020102020101010000")

SWITCHES = [
    Switch(
        "ex-series",
        (
            chassis("02:00:90:69:00:01"), port("531", subtype=7), TTL, text(4, "ge-0/0/21.0"), text(5, "ex-41"),
            text(6, "Juniper Networks, Inc. ex3400-48t , version 20.4R3"), capabilities(0x14, 0x14),
            management(bytes([192, 0, 2, 41]), number=35, oid=OID), (127, b"\x00\x90\x69\x01NX0212345678"),
            dot1(1, b"\x00\x0a"), vlan(10, "vlan-10"), vlan(20, "vlan-20"), dot3(1, b"\x03\x80\x00\x00\x1e"),
            dot3(3, b"\x01\x00\x00\x00\x00"), dot3(4, b"\x05\xea"), END,
        ),
        SwitchLink("02:00:90:69:00:01", "531", "ex-41"),
        {
            "switch_chassis_id": "02:00:90:69:00:01", "switch_port_id": "531",
            "switch_port_description": "ge-0/0/21.0", "switch_system_name": "ex-41",
            "switch_system_description": "Juniper Networks, Inc. ex3400-48t , version 20.4R3",
            "switch_capabilities_support": ["Bridge", "Router"], "switch_capabilities_enabled": ["Bridge", "Router"],
            "switch_mgmt_addresses": ["192.0.2.41"], "switch_port_untagged_vlan_id": 10,
            "switch_port_vlans": [{"id": 10, "name": "vlan-10"}, {"id": 20, "name": "vlan-20"}],
            "switch_port_autonegotiation_enabled": True, "switch_port_autonegotiation_support": True,
            "switch_port_physical_capabilities": [], "switch_port_mau_type": "1000BASE-T full duplex",
            "switch_port_link_aggregation_enabled": False, "switch_port_link_aggregation_support": True,
            "switch_port_link_aggregation_id": 0, "switch_port_mtu": 1514,
        },
    ),
    Switch(
        "binary-local-port",
        (chassis("02:00:90:69:00:02"), (2, b"\x07\x00\x00\x02\x13"), TTL, text(4, "xe-0/0/1"), END),
        SwitchLink("02:00:90:69:00:02", "00000213", None),
        {
            "switch_chassis_id": "02:00:90:69:00:02", "switch_port_id": "00000213",
            "switch_port_description": "xe-0/0/1",
        },
    ),
]  # fmt: skip
