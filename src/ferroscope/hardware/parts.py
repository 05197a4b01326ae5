"""Extracts the parts of a machine from its inspection data, for searches and comparisons.

Accepts whatever ramdisk and hooks stored, in any shape; malformed data is ignored. Values are as in the data; sizes are
bytes, speeds bit/s and Hz. Nothing is guessed. Source: the inventory of ironic-python-agent, and the tables that
dmidecode and lshw collectors add.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from ipaddress import ip_address
from itertools import compress
from operator import itemgetter, methodcaller
from typing import Any, Final

import msgspec

from ferroscope_client import lldp
from ferroscope_client.core.mac_addresses import boot_mac, normalized_mac
from ferroscope_client.core.values import normalized_ip
from ferroscope_client.hardware.readings import Kind, address, mapping, mappings, number, text

Value = str | float

MAX_PARTS: Final = 512
"""The maximum of one kind; further parts are ignored."""

_BYTES_PER_MIB: Final = 2**20
# The TLVs that identify the switch, its port and its name, and say the port's VLAN and MTU.
_PLUGGED: Final = frozenset({1, 2, 4, 5, 127})
_SIZE: Final = re.compile(r"\s*+(\d{1,9})\s*+([KMGT])i?B\s*+\Z")
_RATE: Final = re.compile(r"\s*+(\d{1,9})\s*+(?:MT/s|MHz)\s*+\Z")
_POWERS: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
# PCI classes: VGA, 3D and other display controllers, processing accelerators. The console adapters of BMCs are not
# GPUs.
_GPU_CLASSES: Final = frozenset({"0300", "0302", "0380", "1200"})
_CONSOLES: Final = frozenset({"102b", "1a03", "1234", "1b36", "1af4", "15ad", "1013"})


class Part(msgspec.Struct, frozen=True):
    """One part with its known fields; the machine itself is the part ``node``."""

    kind: Kind
    fields: dict[str, Value]


def parts(inventory: Any, plugin_data: Any) -> list[Part]:
    """Return the parts in the order of the data: the node first, then kind by kind."""
    inventory, extra = mapping(inventory), mapping(plugin_data)
    all_parts = [_node(inventory, extra)]
    all_parts += _limit([_cpu(mapping(inventory.get("cpu")), extra)], "cpu")
    switches = _switches(inventory, extra)
    all_parts += _limit((_nic(nic, switches) for nic in mappings(inventory.get("interfaces"))), "nic")
    all_parts += _limit((_disk(disk) for disk in mappings(inventory.get("disks"))), "disk")
    all_parts += _limit(_dimms(extra), "dimm")
    all_parts += _limit(map(_gpu, _gpus(extra.get("pci_devices") or inventory.get("pci_devices"))), "gpu")
    all_parts += _limit(_firmware(inventory, extra, all_parts[0].fields.get("firmware")), "firmware")
    all_parts += _limit(_health(mapping(mapping(extra.get("out_of_band")).get("health"))), "health")
    return all_parts + _limit(_results(mapping(extra.get("collectors"))), "result")


def _limit(parts_fields: Iterable[dict[str, Value]], kind: Kind) -> list[Part]:
    result = []
    for fields in parts_fields:
        if fields:
            result.append(Part(kind, fields))
            if len(result) == MAX_PARTS:
                break
    return result


def _node(inventory: dict[str, Any], extra: dict[str, Any]) -> Part:
    vendor, memory = mapping(inventory.get("system_vendor")), mapping(inventory.get("memory"))
    firmware = mapping(vendor.get("firmware"))
    bios = mapping(mapping(extra.get("dmi")).get("bios"))
    boot = mapping(inventory.get("boot"))
    physical = number(memory.get("physical_mb"), _BYTES_PER_MIB)
    return Part(
        "node",
        _drop_unknown(
            vendor=text(vendor.get("manufacturer")),
            product=text(vendor.get("product_name")),
            serial=text(vendor.get("serial_number")),
            firmware=text(firmware.get("version")) or text(bios.get("Version")),
            boot_mode=text(boot.get("current_boot_mode")),
            hostname=text(inventory.get("hostname")),
            bmc=address(inventory.get("bmc_address")) or address(inventory.get("bmc_v6address")),
            memory=physical if physical is not None else number(memory.get("total")),
            storage=_total(number(disk.get("size")) for disk in mappings(inventory.get("disks"))),
        ),
    )


def _cpu(cpu: dict[str, Any], extra: dict[str, Any]) -> dict[str, Value]:
    sockets = number(cpu.get("socket_count"))
    dmi_cpus = mapping(extra.get("dmi")).get("cpu")
    if sockets is None and isinstance(dmi_cpus, list) and dmi_cpus:
        sockets = float(len(dmi_cpus))
    return _drop_unknown(
        model=text(cpu.get("model_name")),
        arch=text(cpu.get("architecture")),
        count=number(cpu.get("count")),
        sockets=sockets,
        frequency=number(cpu.get("frequency"), 1_000_000),
    )


# The texts of frequent parts: field -> key in the data.
_NIC: Final = (
    ("name", "name"), ("mac", "mac_address"), ("vendor", "vendor"), ("product", "product"), ("driver", "driver"),
)  # fmt: skip
_DISK: Final = (("name", "name"), ("vendor", "vendor"), ("model", "model"), ("serial", "serial"))
_DIMM: Final = (
    ("slot", "Locator"), ("vendor", "Manufacturer"), ("model", "Part Number"), ("serial", "Serial Number"),
    ("type", "Type"),
)  # fmt: skip


def _texts(part: dict[str, Any], names: Iterable[tuple[str, str]]) -> dict[str, Value]:
    """Return the known texts of a part, like ``text`` for each of them."""
    texts: dict[str, Value] = {}
    for name, key in names:
        value = text(part.get(key))
        if value is not None:
            texts[name] = value
    return texts


def _nic(nic: dict[str, Any], switches: dict[str, dict[str, Any]]) -> dict[str, Value]:
    name = text(nic.get("name"))
    plugged = switches.get(name or "", {})
    carrier = nic.get("has_carrier")
    return _texts(nic, _NIC) | _drop_unknown(
        speed=number(nic.get("speed_mbps"), 1_000_000),
        link=None if not isinstance(carrier, bool) else float(carrier),
        switch=text(plugged.get("switch_system_name")) or text(plugged.get("switch_chassis_id")),
        port=text(lldp.port_name(plugged)),
        vlan=number(plugged.get("switch_port_untagged_vlan_id")),
        mtu=number(plugged.get("switch_port_mtu")),
    )


def _switches(inventory: dict[str, Any], extra: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the LLDP data by NIC name, as recorded by the ramdisk or parsed by a hook.

    The hooks of the two services store it in different places.
    """
    switches = _recorded_switches(inventory, extra)
    for name, interface in mapping(extra.get("all_interfaces")).items():
        if isinstance(interface, dict) and isinstance(interface.get("lldp_processed"), dict):
            switches[name] = interface["lldp_processed"]
    for name, neighbour in mapping(extra.get("parsed_lldp")).items():
        if isinstance(neighbour, dict):
            switches[name] = neighbour
    return switches


def _recorded_switches(inventory: dict[str, Any], extra: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the values of the LLDP frames recorded by the ramdisk, for which no hook is needed."""
    switches = {}
    raw = mapping(extra.get("lldp_raw"))
    for nic in mappings(inventory.get("interfaces"))[:MAX_PARTS]:
        name = text(nic.get("name"))
        frames = raw.get(name) or nic.get("lldp") if name else None
        if name and frames:
            values, _ = lldp.values(tlv for tlv in lldp.neighbour(lldp.frame(frames)[0]) if tlv.kind in _PLUGGED)
            switches[name] = values
    return switches


def _disk(disk: dict[str, Any]) -> dict[str, Value]:
    name, rotational = text(disk.get("name")), disk.get("rotational")
    kind = ("hdd" if rotational else "ssd") if isinstance(rotational, bool) else None
    if (name or "").startswith("/dev/nvme") or disk.get("tran") == "nvme":
        kind = "nvme"
    return _texts(disk, _DISK) | _drop_unknown(
        wwn=text(disk.get("wwn_with_extension")) or text(disk.get("wwn")),
        type=kind,
        size=number(disk.get("size")),
    )


def _dimms(extra: dict[str, Any]) -> Iterator[dict[str, Value]]:
    devices = mapping(mapping(extra.get("dmi")).get("memory")).get("devices")
    if devices:
        for device in mappings(devices):
            size = _measure(_SIZE, device.get("Size"))
            if size:
                dimm = _texts(device, _DIMM)
                dimm["size"] = size
                if (speed := _measure(_RATE, device.get("Speed"))) is not None:
                    dimm["speed"] = speed
                yield dimm
        return
    for name, bank in mapping(mapping(extra.get("extra")).get("memory")).items():
        if name.startswith("bank:") and isinstance(bank, dict) and number(bank.get("size")):
            yield _drop_unknown(
                slot=text(bank.get("slot")) or name,
                vendor=text(bank.get("vendor")),
                model=text(bank.get("product")),
                serial=text(bank.get("serial")),
                size=number(bank.get("size")),
                speed=number(bank.get("clock")),
            )


# There are hundreds of PCI devices and few GPUs, so they are filtered without a line of Python for each.
_class_of: Final = methodcaller("get", "class")
_four: Final = itemgetter(slice(4))


def _gpus(pci_devices: Any) -> Iterator[dict[str, Any]]:
    devices = mappings(pci_devices)
    return compress(devices, map(_GPU_CLASSES.__contains__, map(_four, map(str, map(_class_of, devices)))))


def _gpu(device: dict[str, Any]) -> dict[str, Value]:
    vendor = text(device.get("vendor_id"))
    if vendor in _CONSOLES:
        return {}
    return _drop_unknown(vendor=vendor, product=text(device.get("product_id")), address=text(device.get("bus")))


def _firmware(inventory: dict[str, Any], extra: dict[str, Any], bios: Value | None) -> Iterator[dict[str, Value]]:
    """Yield the firmware of BIOS and other components: as the BMC reports it, or else as the ramdisk collected it."""
    if bios is not None:
        yield {"component": "bios", "name": "bios", "version": bios}
    from_bmc = mapping(mapping(extra.get("out_of_band")).get("inventory")).get("firmware")
    reported = mappings(inventory.get("firmware") or from_bmc)
    for device in reported:
        component, version = text(device.get("component")), text(device.get("version"))
        if component and version and component != "bios":
            others = {name: text(device.get(name)) for name in ("name", "model", "vendor", "serial")}
            yield _drop_unknown(component=component, version=version, **others)
    components = {text(device.get("component")) for device in reported}
    for component, table, field, model in (("nic", "network", "firmware", "product"), ("disk", "disk", "rev", "model")):
        collected = mapping(mapping(extra.get("extra")).get(table)) if component not in components else {}
        for name, device in collected.items():
            if version := text(mapping(device).get(field)):
                others = {"model": text(device.get(model)), "vendor": text(device.get("vendor"))}
                yield _drop_unknown(component=component, name=name, version=version, **others)


def _health(report: dict[str, Any]) -> Iterator[dict[str, Value]]:
    """Yield the health of the machine, and the parts with a problem. Sensors change too often for an index."""
    if report.get("state") in ("ok", "warning", "critical"):
        yield {"component": "machine", "state": report["state"], "complete": float(report.get("complete") is True)}
    for part in mappings(report.get("parts")):
        if part.get("health") in ("warning", "critical"):
            details = {name: text(part.get(name)) for name in ("name", "problem", "serial")}
            yield _drop_unknown(component=text(part.get("component")) or "other", state=part["health"], **details)


def _results(collectors: dict[str, Any]) -> Iterator[dict[str, Value]]:
    """Yield the results of the ramdisk's collectors: one for each text, number or boolean at the top of their JSON."""
    for collector, reported in collectors.items():
        result = mapping(reported)
        common = _drop_unknown(
            collector=text(collector), exit_code=number(result.get("exit_code")), error=text(result.get("error"))
        )
        values = mapping(result.get("data")).items()
        simple = [(name, value) for name, value in values if isinstance(value, str | int | float)]
        for name, value in simple:
            as_text = str(value).lower() if isinstance(value, bool) else text(value)
            yield common | _drop_unknown(name=text(name), value=as_text, number=number(value))
        if not simple:
            yield common


def ip(inventory: Any) -> str | None:
    """Return the machine's address in the ramdisk: IPv4 before IPv6, and the boot NIC before others."""
    inventory = mapping(inventory)
    booted = boot_mac(mapping(inventory.get("boot")).get("pxe_interface"))
    nics = mappings(inventory.get("interfaces"))[:MAX_PARTS]
    nics.sort(key=lambda nic: booted is None or normalized_mac(nic.get("mac_address")) != booted)
    for field in ("ipv4_address", "ipv6_address"):
        for nic in nics:
            ip_text = normalized_ip(text(nic.get(field)) or "")
            if ip_text is not None and not ip_address(ip_text).is_link_local:
                return ip_text
    return None


def _measure(form: re.Pattern[str], value: Any) -> float | None:
    match = form.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    unit = match.groups()[1] if form is _SIZE else None
    return float(match[1]) * (_POWERS[unit] if unit else 1_000_000)


def _total(sizes: Iterable[float | None]) -> float | None:
    known_sizes = [size for size in sizes if size is not None]
    return sum(known_sizes) if known_sizes else None


def _drop_unknown(**fields: Value | None) -> dict[str, Value]:
    return {name: value for name, value in fields.items() if value is not None}
