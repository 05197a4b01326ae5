"""Inspection data under the names of ironic-inspector: what its rules read, and its API returns.

The expected values are those of ironic-inspector 12.5.0 with its default hooks, on the same inventory.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.api.introspection import with_client_keys
from tests.support.rows import each

GIB = 1 << 30
NIC = {"mac_address": "52:54:00:00:00:01", "ipv4_address": None, "ipv6_address": "2001:db8::1", "pxe_enabled": True}
INVENTORY: dict[str, Any] = {
    "cpu": {"count": 4, "architecture": "x86_64"},
    "memory": {"physical_mb": 12288},
    "boot": {"pxe_interface": "52:54:00:00:00:01"},
    "bmc_address": "192.0.2.7",
    "bmc_v6address": "::/0",
}

NO_BMC: dict[str, Any] = {"ipmi_address": None, "ipmi_v6address": None}


def found(extra: dict[str, Any], inventory: Any = None) -> Any:
    parts: Any = {"inventory": msgspec.json.encode(inventory or {}), "plugin_data": msgspec.json.encode(extra)}
    return msgspec.json.decode(with_client_keys(parts))


def test_the_keys_that_inspectors_hooks_add_are_there() -> None:
    switch = {"switch_port_id": "Ethernet1"}
    extra = {
        "all_interfaces": {"eno1": NIC},
        "valid_interfaces": {"eno1": NIC},
        "parsed_lldp": {"eno1": switch},
        "macs": ["52:54:00:00:00:01"],
        "root_disk": {"name": "/dev/sda", "size": 1000 * GIB},
        "x": 1,
    }
    theirs = {"mac": "52:54:00:00:00:01", "ip": "2001:db8::1", "pxe": True, "client_id": None, "lldp_processed": switch}
    assert found(extra, INVENTORY) == extra | {
        "all_interfaces": {"eno1": NIC | theirs},
        "interfaces": {"eno1": NIC | theirs},
        "cpus": 4,
        "cpu_arch": "x86_64",
        "memory_mb": 12288,
        "local_gb": 999,
        "boot_interface": "52:54:00:00:00:01",
        "ipmi_address": "192.0.2.7",
        "ipmi_v6address": None,
    }


@each(
    ("inventory", "expected"),
    [
        ({"cpu": {"count": "8", "architecture": 5}, "memory": {"physical_mb": "many"}}, {"cpus": 8}),
        ({"cpu": None, "memory": [], "boot": "pxe", "bmc_address": "0.0.0.0"}, {}),
        ({"cpu": {"count": 1e400}, "memory": {"physical_mb": -1e300}}, {}),
    ],
)
def test_what_is_malformed_is_left_out(inventory: Any, expected: dict[str, Any]) -> None:
    text = msgspec.json.encode(inventory).replace(b"Infinity", b"1e400").replace(b"null}", b"1e308}")
    assert found({}, msgspec.json.decode(text)) == {"local_gb": 0, **NO_BMC, **expected}


@each("disk", [None, {}, {"size": "big"}, {"size": GIB - 1}, {"size": -5}, {"size": True}, []])
def test_without_a_root_disk_or_its_size_local_gb_is_0(disk: Any) -> None:
    assert found({"root_disk": disk})["local_gb"] == 0


@each(
    "extra",
    [
        {"all_interfaces": 5, "parsed_lldp": []},
        {"all_interfaces": {"eno1": 5}, "parsed_lldp": {"eno1": 5}},
        {
            "all_interfaces": {"eno1": {"mac": "x", "ip": 1, "pxe": 2, "client_id": 3}},
            "interfaces": [],
            "valid_interfaces": {"eno1": {}},
            "cpus": "many",
            "memory_mb": 1,
            "cpu_arch": None,
            "boot_interface": [],
        },
    ],
)
def test_what_is_of_another_shape_or_named_already_stays(extra: dict[str, Any]) -> None:
    extra |= {"local_gb": 7, "ipmi_v6address": "x", "ipmi_address": 5}
    assert found(extra, {} if "cpus" not in extra else INVENTORY) == extra
