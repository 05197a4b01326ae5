"""An inventory as the specification of Metal3's HardwareData. Pure; an inventory may contain anything.

Source: the CustomResourceDefinition hardwaredata.metal3.io/v1alpha1 as published by Metal3, and how Metal3 itself fills
it from an inventory of ironic-python-agent: a NIC with two addresses appears twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

Document = dict[str, Any]

_MAC: Final = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_VLANS: Final = 4094


def specification(inventory: Any, plugin_data: Any) -> Document:
    """Return ``spec`` of the HardwareData; what is unknown or not of its type is left out."""
    inventory, plugin_data = _document(inventory), _document(plugin_data)
    system = _document(inventory.get("system_vendor"))
    bios, cpu = _document(system.get("firmware")), _document(inventory.get("cpu"))
    memory = _document(inventory.get("memory"))
    pxe = _text(_document(inventory.get("boot")), "pxe_interface")
    lldp = _document(plugin_data.get("parsed_lldp"))
    found = {
        "hostname": _text(inventory, "hostname"),
        "systemVendor": _filled({
            "manufacturer": _text(system, "manufacturer"),
            "productName": _text(system, "product_name"),
            "serialNumber": _text(system, "serial_number"),
        }),
        "firmware": _filled({"bios": _filled({
            "vendor": _text(bios, "vendor"), "version": _text(bios, "version"), "date": _text(bios, "build_date"),
        })}),
        "cpu": _filled({
            "arch": _text(cpu, "architecture"),
            "model": _text(cpu, "model_name"),
            "clockMegahertz": _number(cpu.get("frequency"), float),
            "count": _number(cpu.get("count"), int),
            "flags": sorted(one for one in _list(cpu.get("flags")) if isinstance(one, str)),
        }),
        "ramMebibytes": _number(memory.get("physical_mb"), int),
        "nics": [nic for one in _list(inventory.get("interfaces")) for nic in _nics(_document(one), pxe, lldp)],
        "storage": [disk for one in _list(inventory.get("disks")) if (disk := _disk(_document(one)))],
    }  # fmt: skip
    return {"hardware": _filled(found)}


def _nics(nic: Document, pxe: str | None, lldp: Document) -> list[Document]:
    mac, name = _text(nic, "mac_address"), _text(nic, "name")
    if mac is None or not _MAC.fullmatch(mac):
        return []
    heard = _document(lldp.get(name or ""))
    ids = [one for key in ("vendor", "product") if (one := _text(nic, key))]
    speed, vlan = _number(nic.get("speed_mbps"), int), _vlan(heard.get("switch_port_untagged_vlan_id"))
    common = _filled({
        "name": name,
        "mac": mac.lower(),
        "model": " ".join(ids) or None,
        "pciAddress": _text(nic, "pci_address"),
        "pxe": pxe is not None and pxe.lower().removeprefix("01-").replace("-", ":") == mac.lower(),
        "speedGbps": None if speed is None else speed // 1000,
        "vlanId": vlan,
        "vlans": [
            _filled({"id": ident, "name": _text(one, "name")})
            for one in map(_document, _list(heard.get("switch_port_vlans")))
            if (ident := _vlan(one.get("id"))) is not None
        ],
        "lldp": _filled({
            "switchID": _text(heard, "switch_chassis_id"),
            "portID": _text(heard, "switch_port_id"),
            "switchSystemName": _text(heard, "switch_system_name"),
        }),
    })  # fmt: skip
    addresses = [one for key in ("ipv4_address", "ipv6_address") if (one := _text(nic, key))]
    return [common | {"ip": one} for one in addresses] or [common]


def _disk(disk: Document) -> Document:
    name, path = _text(disk, "name"), _text(disk, "by_path")
    rotational = disk.get("rotational") if isinstance(disk.get("rotational"), bool) else None
    kind = None if rotational is None else "HDD" if rotational else "NVME" if "nvme" in (name or "") else "SSD"
    return _filled({
        "name": path or name,
        "alternateNames": [one for one in (name, path) if one],
        "model": _text(disk, "model"),
        "vendor": _text(disk, "vendor"),
        "serialNumber": _text(disk, "serial"),
        "sizeBytes": _number(disk.get("size"), int),
        "rotational": rotational,
        "type": kind,
        "hctl": _text(disk, "hctl"),
        "wwn": _text(disk, "wwn"),
        "wwnVendorExtension": _text(disk, "wwn_vendor_extension"),
        "wwnWithExtension": _text(disk, "wwn_with_extension"),
    })  # fmt: skip


def _document(value: Any) -> Document:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(document: Document, key: str) -> str | None:
    value = document.get(key)
    return value[:1024] if isinstance(value, str) and value else None


def _number(value: Any, kind: Callable[[Any], Any]) -> Any:
    """Return a number of this kind, at least 0; IPA reports some of them as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = kind(value)
    except (ValueError, OverflowError):
        return None
    return number if 0 <= number < 2**63 else None


def _vlan(value: Any) -> int | None:
    number = _number(value, int)
    return number if number is not None and number <= _VLANS else None


def _filled(document: Document) -> Document:
    return {name: value for name, value in document.items() if value not in (None, {}, [])}
