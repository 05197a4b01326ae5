"""An inventory in a dozen lines: what a person wants to know of a machine first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ferroscope.cli import pci
from ferroscope.cli.client import Json
from ferroscope.cli.output import facts, table
from ferroscope.cli.text import short
from ferroscope.core import values
from ferroscope.core.values import natural
from ferroscope.hardware.parts import address, mapping, mappings, number, text

if TYPE_CHECKING:
    from rich.console import Console

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def draw(screen: Console, inventory: Json) -> None:
    """Print the summary of an inventory as ironic-python-agent defines it.

    Whatever is missing, or is not what it should be, is left out: a machine may have sent anything.
    """
    known = mapping(inventory)
    screen.print(facts(machine(known)))
    nics = _in_order(mappings(known.get("interfaces")))
    if nics:
        booted = values.normalize(text(mapping(known.get("boot")).get("pxe_interface")) or "")
        rows = [_nic(nic, booted) for nic in nics]
        screen.print()
        screen.print(table(("NIC", "MAC", "BOOT", "ADDRESS", "CARRIER", "SPEED", "PRODUCT"), rows))
    disks = _in_order(mappings(known.get("disks")))
    if disks:
        screen.print()
        screen.print(table(("DISK", "SIZE", "KIND", "MODEL", "SERIAL"), [_disk(disk) for disk in disks]))


def machine(inventory: dict[str, Any]) -> dict[str, Any]:
    """Return the machine's facts, by the names under which they are shown."""
    cpu, memory, boot, vendor = (mapping(inventory.get(name)) for name in ("cpu", "memory", "boot", "system_vendor"))
    firmware = mapping(vendor.get("firmware"))
    megabytes, count = number(memory.get("physical_mb")), number(cpu.get("count"))
    return {
        "Machine": _words(vendor.get("manufacturer"), vendor.get("product_name")),
        "Serial number": _words(vendor.get("serial_number")),
        "Firmware": _words(firmware.get("vendor"), firmware.get("version"), firmware.get("build_date")),
        "CPU": _words(f"{count:g} x" if count else None, cpu.get("model_name"), cpu.get("architecture")),
        "Memory": f"{megabytes / 1024:,.0f} GiB" if megabytes else None,
        "Boot": _words(boot.get("current_boot_mode"), boot.get("pxe_interface")),
        "BMC": _words(address(inventory.get("bmc_address")), address(inventory.get("bmc_v6address"))),
    }


def size(given: Any) -> str | None:
    """Return a number of bytes as disks are sold: 1000 bytes are a kB."""
    value, unit = number(given), 0
    if value is None or value <= 0:
        return None
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def _in_order(parts: list[Json]) -> list[Json]:
    """Return parts in the order of their names as people count: eth2 before eth10."""
    return sorted(parts, key=lambda part: natural(text(part.get("name")) or ""))


def _nic(nic: Json, booted: str | None) -> tuple[Any, ...]:
    mac = _words(nic.get("mac_address"))
    speed, carrier = number(nic.get("speed_mbps")), nic.get("has_carrier")
    return (
        _words(nic.get("name")),
        mac,
        "yes" if booted and mac and values.normalize(mac) == booted else "",
        _address(nic),
        carrier if isinstance(carrier, bool) else None,
        f"{speed / 1000:g} Gb/s" if speed is not None and speed > 0 else None,
        _words(pci.name(text(nic.get("vendor")), text(nic.get("product")))),
    )


def _address(nic: Json) -> str | None:
    """Return the NIC's address; a link-local one tells nobody anything."""
    addresses = [_words(nic.get("ipv4_address")), _words(nic.get("ipv6_address"))]
    return next((one for one in addresses if one and not one.lower().startswith("fe80:")), None)


def _disk(disk: Json) -> tuple[Any, ...]:
    rotational = disk.get("rotational")
    kind = ("rotating" if rotational else "solid state") if isinstance(rotational, bool) else None
    return _words(disk.get("name")), size(disk.get("size")), kind, _words(disk.get("model")), _words(disk.get("serial"))


def _words(*parts: Any) -> str | None:
    return " ".join(short(word) for part in parts if (word := text(part))) or None
