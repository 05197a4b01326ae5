"""The hardware inventory of a Redfish service, in the format of ironic-python-agent's.

Unknown values are left out, never guessed: a missing or refused (permanently) resource makes the inventory smaller,
not wrong. Transient errors are raised, and the call is retried.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import sushy
from sushy import exceptions

from ferroscope.contracts.bmc import OutOfBandNic
from ferroscope.core import values
from ferroscope.core.model import Document

_GIB: Final = 1024**3
_ARCHITECTURES: Final = {
    sushy.InstructionSet.X86: "i686",
    sushy.InstructionSet.X86_64: "x86_64",
    sushy.InstructionSet.ARM_A32: "armv7l",
    sushy.InstructionSet.ARM_A64: "aarch64",
    sushy.InstructionSet.POWER_ISA: "ppc64le",
}
_GONE: Final = frozenset({sushy.STATE_ABSENT, sushy.STATE_DISABLED})
_MODES: Final = {sushy.BOOT_SOURCE_MODE_UEFI: "uefi", sushy.BOOT_SOURCE_MODE_BIOS: "bios"}
# More than any machine has; further entries are ignored.
_MAX_PARTS: Final = 1024


def nics(system: Any) -> list[OutOfBandNic]:
    """Return the NICs with a MAC, in the service's order, each MAC once."""
    found: dict[str, OutOfBandNic] = {}
    for member in _members(lambda: system.ethernet_interfaces.get_members()):
        mac = _mac(member)
        if mac is not None:
            nic = OutOfBandNic(mac=mac, name=str(member.identity or mac), enabled=not _is_gone(member))
            found.setdefault(mac, nic)
    return list(found.values())


def collect(system: Any) -> Document:
    """Return everything that the service reports about ``system``."""
    parts = {
        "interfaces": _interfaces(system),
        "cpu": _cpu(system),
        "memory": _memory(system),
        "disks": _disks(system),
        "system_vendor": _vendor(system),
        "boot": _boot(system),
        "hostname": system.hostname,
        "bmc_mac": _bmc_mac(system),
    } | _bmc_address(system)
    return {name: part for name, part in parts.items() if part not in (None, "", {})}


def _interfaces(system: Any) -> list[Document]:
    speeds = {
        _mac(member): _number(member.speed_mbps)
        for member in _members(lambda: system.ethernet_interfaces.get_members())
    }
    return [_interface(nic) | _known({"speed_mbps": speeds.get(nic.mac)}) for nic in nics(system)]


def _interface(nic: OutOfBandNic) -> Document:
    return {"name": nic.name, "mac_address": nic.mac, "ipv4_address": None, "ipv6_address": None, "lldp": None}


def _bmc_mac(system: Any) -> str | None:
    """Return the MAC of the first NIC of the BMC itself."""
    for manager in _members(lambda: system.managers):
        for member in _members(partial(lambda one: one.ethernet_interfaces.get_members(), manager)):
            mac = _mac(member)
            if mac is not None and not _is_gone(member):
                return mac
    return None


def _mac(member: Any) -> str | None:
    """Return the MAC of an Ethernet interface, normalized."""
    return values.normalize(str(member.mac_address or member.permanent_mac_address or ""))


def _is_gone(member: Any) -> bool:
    return member.status is not None and member.status.state in _GONE


def _cpu(system: Any) -> Document:
    processors = [
        processor
        for processor in _members(lambda: system.processors.get_members())
        if processor.processor_type in (None, sushy.ProcessorType.CPU)
        and (processor.status is None or processor.status.state is not sushy.STATE_ABSENT)
    ]
    if not processors:
        return {}
    first = processors[0]
    return _known(
        {
            "count": sum(_number(cpu.total_threads) or _number(cpu.total_cores) or 1 for cpu in processors),
            "architecture": _ARCHITECTURES.get(first.instruction_set),
            "model_name": first.model,
            "frequency": str(first.max_speed_mhz) if first.max_speed_mhz else None,
            "socket_count": len(processors),
        }
    )


def _memory(system: Any) -> Document:
    gib = _number(system.memory_summary.size_gib if system.memory_summary else None)
    return {"total": gib * _GIB, "physical_mb": gib * 1024} if gib else {}


def _disks(system: Any) -> list[Document]:
    found = [
        _disk(drive)
        for storage in _members(lambda: system.storage.get_members())
        for drive in _members(partial(getattr, storage, "drives"))
    ]
    return found[:_MAX_PARTS] or _simple_disks(system)


def _disk(drive: Any) -> Document:
    wwn = next((str(ident.durable_name) for ident in drive.identifiers or () if ident.durable_name), None)
    rotational = {"HDD": True, "SSD": False}.get(str(drive.media_type))
    return _known(
        {
            "name": drive.name or drive.identity,
            "model": drive.model,
            "vendor": drive.manufacturer,
            "serial": drive.serial_number,
            "size": _number(drive.capacity_bytes),
            "rotational": rotational,
            "wwn": wwn,
        }
    )


def _simple_disks(system: Any) -> list[Document]:
    return [
        _known({"name": device.name, "model": device.model, "vendor": device.manufacturer, "size": size})
        for storage in _members(lambda: system.simple_storage.get_members())
        for device in storage.devices or ()
        if (size := _number(device.capacity_bytes)) is not None
    ]


def _vendor(system: Any) -> Document:
    vendor = _known(
        {"manufacturer": system.manufacturer, "product_name": system.model, "serial_number": system.serial_number}
    )
    if system.bios_version:
        vendor["firmware"] = {"vendor": "", "version": system.bios_version, "build_date": ""}
    return vendor


def _boot(system: Any) -> Document:
    mode = _MODES.get(system.boot.mode) if system.boot is not None else None
    return {"current_boot_mode": mode} if mode else {}


def _bmc_address(system: Any) -> Document:
    """Return the address that we use for the BMC, if it is an IP address."""
    try:
        address = ipaddress.ip_address(urlsplit(system._conn._url).hostname or "")
    except ValueError:
        return {}
    return {"bmc_v6address" if address.version == 6 else "bmc_address": str(address)}


def _members(read: Callable[[], Any]) -> list[Any]:
    """Return the members of a collection; none if the service does not have it, or refuses access."""
    try:
        return list(itertools.islice(read(), _MAX_PARTS))
    except (exceptions.MissingAttributeError, exceptions.ResourceNotFoundError):
        return []
    except exceptions.HTTPError as exc:
        if exc.status_code in (400, 403, 405, 406, 500, 501):
            return []
        raise


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _known(part: Document) -> Document:
    return {name: value for name, value in part.items() if value not in (None, "")}
