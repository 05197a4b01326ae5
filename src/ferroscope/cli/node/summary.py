"""An inventory in a dozen lines: what a person wants to know of a machine first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ferroscope.cli.client import Json
from ferroscope.cli.output import facts, table

if TYPE_CHECKING:
    from rich.console import Console

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def draw(screen: Console, inventory: Json) -> None:
    """Print the summary of an inventory as ironic-python-agent defines it; whatever is missing is left out."""
    screen.print(facts(machine(inventory)))
    nics = [nic for nic in inventory.get("interfaces") or [] if isinstance(nic, dict)]
    if nics:
        screen.print()
        screen.print(table(("NIC", "MAC", "ADDRESS", "CARRIER", "SPEED", "PRODUCT"), [_nic(nic) for nic in nics]))
    disks = [disk for disk in inventory.get("disks") or [] if isinstance(disk, dict)]
    if disks:
        screen.print()
        screen.print(table(("DISK", "SIZE", "KIND", "MODEL", "SERIAL"), [_disk(disk) for disk in disks]))


def machine(inventory: Json) -> dict[str, Any]:
    """Return the machine's facts, by the names under which they are shown."""
    cpu, memory, boot = (inventory.get(name) or {} for name in ("cpu", "memory", "boot"))
    vendor = inventory.get("system_vendor") or {}
    firmware = vendor.get("firmware") or {}
    megabytes = memory.get("physical_mb")
    return {
        "Machine": _words(vendor.get("manufacturer"), vendor.get("product_name")),
        "Serial number": vendor.get("serial_number"),
        "Firmware": _words(firmware.get("vendor"), firmware.get("version"), firmware.get("build_date")),
        "CPU": _words(
            f"{cpu['count']} x" if cpu.get("count") else None, cpu.get("model_name"), cpu.get("architecture")
        ),
        "Memory": f"{megabytes / 1024:,.0f} GiB" if isinstance(megabytes, int) and megabytes else None,
        "Boot": _words(boot.get("current_boot_mode"), boot.get("pxe_interface")),
        "BMC": _words(inventory.get("bmc_address"), inventory.get("bmc_v6address")),
    }


def size(number: Any) -> str | None:
    """Return a number of bytes as disks are sold: 1000 bytes are a kB."""
    if not isinstance(number, int | float) or number <= 0:
        return None
    value, unit = float(number), 0
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def _nic(nic: Json) -> tuple[Any, ...]:
    speed = nic.get("speed_mbps")
    return (
        nic.get("name"),
        nic.get("mac_address"),
        _address(nic),
        nic.get("has_carrier"),
        f"{speed / 1000:g} Gb/s" if isinstance(speed, int) and speed > 0 else None,
        _words(nic.get("vendor"), nic.get("product")),
    )


def _address(nic: Json) -> str | None:
    """Return the NIC's address; a link-local one tells nobody anything."""
    addresses = [nic.get("ipv4_address"), nic.get("ipv6_address")]
    return next((text for text in addresses if text and not str(text).lower().startswith("fe80:")), None)


def _disk(disk: Json) -> tuple[Any, ...]:
    kind = "rotating" if disk.get("rotational") else "solid state"
    return disk.get("name"), size(disk.get("size")), kind, disk.get("model"), disk.get("serial")


def _words(*parts: Any) -> str | None:
    return " ".join(str(part).strip() for part in parts if part not in (None, "")) or None
