"""Inspection data under the names that ironic-inspector gives it. Pure.

Data is stored in the form of the Bare Metal API. Rules of the Introspection API, and its clients, also read the keys
that ironic-inspector adds to it. Source: the processing hooks that ironic-inspector 12.5.0 enables by default
(``root_disk_selection``, ``scheduler``, ``validate_interfaces``), and ``lldp_basic``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ferroscope.core.model import Document
from ferroscope_client.core import values

# The parts whose values ``names`` reads.
OF_INVENTORY: Final = ("cpu", "memory", "boot", "bmc_address", "bmc_v6address")
OF_PLUGIN_DATA: Final = ("all_interfaces", "valid_interfaces", "parsed_lldp", "root_disk")

_GIB_BYTES: Final = 1 << 30
_MAX_NUMBER: Final = 1 << 80


def names(inventory: Mapping[str, Any], plugin_data: Mapping[str, Any]) -> Document:
    """Return what to add to ``plugin_data``: the keys of ironic-inspector that it lacks and whose values are known.

    ``all_interfaces`` is replaced: each interface gets ``mac``, ``ip``, ``pxe``, ``client_id``, and ``lldp_processed``
    if its LLDP data was parsed. ``local_gb`` is in GiB, less one for partitioning. Existing keys do not change.
    """
    switches = _object(plugin_data.get("parsed_lldp"))
    values_by_key = _scheduler_keys(inventory) | {
        "local_gb": _local_gb(plugin_data.get("root_disk")),
        "boot_interface": _text(_object(inventory.get("boot")).get("pxe_interface")),
        "interfaces": _interfaces(plugin_data.get("valid_interfaces"), switches),
    }
    values_by_key = {key: value for key, value in values_by_key.items() if value is not None} | {
        "ipmi_address": _bmc_address(inventory.get("bmc_address")),
        "ipmi_v6address": _bmc_address(inventory.get("bmc_v6address")),
    }
    added = {key: value for key, value in values_by_key.items() if key not in plugin_data}
    if nics := _interfaces(plugin_data.get("all_interfaces"), switches):
        added["all_interfaces"] = nics
    return added


def _scheduler_keys(inventory: Mapping[str, Any]) -> Document:
    cpu, memory = _object(inventory.get("cpu")), _object(inventory.get("memory"))
    return {
        "cpus": _number(cpu.get("count")),
        "cpu_arch": _text(cpu.get("architecture")),
        "memory_mb": _number(memory.get("physical_mb")),
    }


def _number(value: Any) -> int | None:
    if isinstance(value, str):
        return int(value) if value.isascii() and value.isdigit() and len(value) < 20 else None
    return int(value) if isinstance(value, int | float) and abs(value) < _MAX_NUMBER else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _bmc_address(value: Any) -> str | None:
    return value if values.bmc_ip(value) else None


def _local_gb(root_disk: Any) -> int:
    size = _number(_object(root_disk).get("size"))
    return max(0, (size or 0) // _GIB_BYTES - 1)


def _interfaces(reported: Any, switches: Document) -> Document | None:
    interfaces = _object(reported)
    return {name: _interface_names(nic, switches.get(name)) for name, nic in interfaces.items()} or None


def _interface_names(nic: Any, switch: Any) -> Any:
    if not isinstance(nic, dict):
        return nic
    names = {
        "mac": nic.get("mac_address"),
        "ip": nic.get("ipv4_address") or nic.get("ipv6_address"),
        "pxe": nic.get("pxe_enabled"),
        "client_id": None,
    }
    if isinstance(switch, dict):
        names["lldp_processed"] = switch
    return names | nic


def _object(value: Any) -> Document:
    return value if isinstance(value, dict) else {}
