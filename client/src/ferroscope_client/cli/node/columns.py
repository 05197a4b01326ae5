"""Columns of node lists, and hardware summaries, for ``node list``, ``node show`` and ``search``.

``hardware`` is the summary from the API: sizes in bytes, texts as reported by the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ferroscope_client.cli import text as pci
from ferroscope_client.cli.lookup import label
from ferroscope_client.cli.output import Output, key_values, table
from ferroscope_client.cli.text import age, short
from ferroscope_client.client import Json
from ferroscope_client.core import labels, mac_addresses
from ferroscope_client.core.values import natural
from ferroscope_client.hardware import names
from ferroscope_client.hardware.readings import address, mapping, mappings, number, text

if TYPE_CHECKING:
    from rich.console import Console

    from ferroscope_client.cli.lookup import Listing


# The summary of an inventory, in a dozen lines.

_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def draw(screen: Console, inventory: Json) -> None:
    """Print the summary of an inventory in the format of ironic-python-agent.

    Missing or invalid values are omitted: a machine may have sent anything.
    """
    document = mapping(inventory)
    screen.print(key_values(machine_summary(document)))
    nics = _in_order(mappings(document.get("interfaces")))
    if nics:
        booted = mac_addresses.boot_mac(text(mapping(document.get("boot")).get("pxe_interface")) or "")
        rows = [_nic(nic, booted) for nic in nics]
        screen.print()
        screen.print(table(("NIC", "MAC", "BOOT", "ADDRESS", "CARRIER", "SPEED", "PRODUCT"), rows))
    disks = _in_order(mappings(document.get("disks")))
    if disks:
        screen.print()
        screen.print(table(("DISK", "SIZE", "KIND", "MODEL", "SERIAL"), [_disk(disk) for disk in disks]))


def machine_summary(inventory: dict[str, Any]) -> dict[str, Any]:
    """Return the properties of the machine by their titles."""
    cpu, ram, boot, vendor = (mapping(inventory.get(name)) for name in ("cpu", "memory", "boot", "system_vendor"))
    firmware = mapping(vendor.get("firmware"))
    megabytes, count = number(ram.get("physical_mb")), number(cpu.get("count"))
    return {
        "Machine": _words(vendor.get("manufacturer"), vendor.get("product_name")),
        "Serial number": _words(vendor.get("serial_number")),
        "Firmware": _words(firmware.get("vendor"), firmware.get("version"), firmware.get("build_date")),
        "CPU": _words(f"{count:g} x" if count else None, cpu.get("model_name"), cpu.get("architecture")),
        "Memory": memory(megabytes * 2**20) if megabytes else None,
        "Boot": _words(boot.get("current_boot_mode"), boot.get("pxe_interface")),
        "BMC": _words(address(inventory.get("bmc_address")), address(inventory.get("bmc_v6address"))),
    }


def size(reported: Any) -> str | None:
    """Return a number of bytes in decimal units, as usual for disks: 1 kB is 1000 bytes."""
    value, unit = number(reported), 0
    if value is None or value <= 0:
        return None
    while value >= 1000 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def _in_order(parts: list[Json]) -> list[Json]:
    """Return parts in natural order of their names: eth2 before eth10."""
    return sorted(parts, key=lambda part: natural(text(part.get("name")) or ""))


def _nic(nic: Json, booted: str | None) -> tuple[Any, ...]:
    mac = _words(nic.get("mac_address"))
    speed, carrier = number(nic.get("speed_mbps")), nic.get("has_carrier")
    return (
        _words(nic.get("name")),
        mac,
        "yes" if booted and mac and mac_addresses.normalized_mac(mac) == booted else "",
        _address(nic),
        carrier if isinstance(carrier, bool) else None,
        f"{speed / 1000:g} Gb/s" if speed is not None and speed > 0 else None,
        _words(pci.name(text(nic.get("vendor")), text(nic.get("product")))),
    )


def _address(nic: Json) -> str | None:
    """Return the NIC's address, unless it is link-local."""
    addresses = [_words(nic.get("ipv4_address")), _words(nic.get("ipv6_address"))]
    return next((candidate for candidate in addresses if candidate and not candidate.lower().startswith("fe80:")), None)


def _disk(disk: Json) -> tuple[Any, ...]:
    rotational = disk.get("rotational")
    kind = ("rotating" if rotational else "solid state") if isinstance(rotational, bool) else None
    return _words(disk.get("name")), size(disk.get("size")), kind, _words(disk.get("model")), _words(disk.get("serial"))


def _words(*parts: Any) -> str | None:
    return " ".join(short(word) for part in parts if (word := text(part))) or None


_BYTES_PER_GIB: Final = 2**30
_MAX_MODEL_CHARACTERS: Final = 32


class NodeColumn(msgspec.Struct, frozen=True):
    """``shown`` is for tables, ``exact`` for CSV (None: the same); ``wide``: only shown in wide output."""

    title: str
    shown: Callable[[Json], Any]
    exact: Callable[[Json], Any] | None = None
    wide: bool = False
    right: bool = False


def _of(name: str) -> Callable[[Json], Any]:
    return lambda node: node.get(name)


def _hardware(name: str) -> Callable[[Json], Any]:
    return lambda node: (node.get("hardware") or {}).get(name)


NODES: Final = (
    NodeColumn("NAME", label, _of("name")),
    NodeColumn("STATE", _of("provision_state")),
    NodeColumn("POWER", lambda node: (node["power_state"] or "-").removeprefix("power "), _of("power_state")),
    NodeColumn("MAINT", lambda node: "yes" if node["maintenance"] else "", _of("maintenance")),
    NodeColumn("MODEL", lambda node: model(_hardware("product")(node)), _hardware("product")),
    NodeColumn("SERIAL", _hardware("serial")),
    NodeColumn("CPUS", _hardware("cpus"), right=True),
    NodeColumn("MEMORY", lambda node: memory(_hardware("memory")(node)), _hardware("memory"), right=True),
    NodeColumn("DISKS", lambda node: disks(node.get("hardware") or {}), _hardware("storage"), right=True),
    NodeColumn(
        "AGE", lambda node: age(node["provision_updated_at"], now=_now()), _of("provision_updated_at"), right=True
    ),
    NodeColumn("VENDOR", _hardware("vendor"), wide=True),
    NodeColumn("CPU", lambda node: cpu(_hardware("cpu")(node)), _hardware("cpu"), wide=True),
    NodeColumn("GPUS", _hardware("gpus"), wide=True, right=True),
    NodeColumn("NICS", _hardware("nics"), wide=True, right=True),
    NodeColumn("FIRMWARE", _hardware("firmware"), wide=True),
    NodeColumn("DRIVER", _of("driver"), wide=True),
    NodeColumn("OWNER", _of("owner"), wide=True),
    NodeColumn("CLASS", _of("resource_class"), wide=True),
    NodeColumn("LABELS", lambda node: labels.format_labels(node.get("labels") or {}), wide=True),
    NodeColumn("MAINTENANCE REASON", _of("maintenance_reason"), wide=True),
    NodeColumn("UUID", _of("uuid"), wide=True),
    NodeColumn("ERROR", lambda node: node["last_error"] or "", _of("last_error")),
)
_SPARE: Final = ("DISKS", "CPUS", "SERIAL", "ERROR", "MEMORY", "MODEL", "POWER", "MAINT", "AGE")


def show(
    out: Output,
    nodes: Sequence[Json],
    columns: Sequence[NodeColumn] = NODES,
    spare: Sequence[str] = _SPARE,
    below: str | None = "ERROR",
) -> None:
    """Print the nodes in the selected format."""
    chosen = _choose(out, columns)
    rows = ([(column.exact or column.shown)(node) for column in chosen] for node in nodes)
    if out.rows([column.title for column in chosen], rows):
        return
    out.show(
        nodes,
        lambda screen: (
            listing(nodes, chosen, () if out.wide else spare, None if out.wide else below).print(screen)
            if nodes
            else None
        ),
    )


def live(out: Output, nodes: Sequence[Json]) -> Listing:
    """Return the table of nodes for a terminal."""
    return listing(nodes, _choose(out, NODES), () if out.wide else _SPARE, None if out.wide else "ERROR")


def _choose(out: Output, columns: Sequence[NodeColumn]) -> list[NodeColumn]:
    return [column for column in columns if out.wide or not column.wide]


def listing(
    nodes: Sequence[Json],
    columns: Sequence[NodeColumn] = NODES,
    spare: Sequence[str] = _SPARE,
    below: str | None = "ERROR",
) -> Listing:
    """Return a table with these columns; those in ``spare`` are dropped if they do not fit."""
    from ferroscope_client.cli.lookup import Listing

    return Listing(
        [column.title for column in columns],
        ([column.shown(node) for column in columns] for node in nodes),
        spare=spare,
        below=below,
        right=[column.title for column in columns if column.right],
    )


def machine(hardware: Json) -> dict[str, Any]:
    """Return the properties of a machine by their titles."""
    processors = " x ".join(str(part) for part in (hardware.get("cpus"), cpu(hardware.get("cpu"))) if part)
    return {
        "Machine": " ".join(part for part in (hardware.get("vendor"), hardware.get("product")) if part),
        "Serial number": hardware.get("serial"),
        "Firmware": hardware.get("firmware"),
        "CPUs": processors,
        "Memory": memory(hardware.get("memory")),
        "Disks": disks(hardware),
        "NICs": hardware.get("nics"),
        "GPUs": hardware.get("gpus"),
        "Health": hardware.get("health"),
        "Failing drives": hardware.get("failing_drives"),
    }


def model(product: str | None) -> str | None:
    """Return the name of a model without the vendor's internal numbers."""
    return None if product is None else short(names.model(product), _MAX_MODEL_CHARACTERS)


def cpu(name: str | None) -> str | None:
    """Return the name of a processor without trademarks and clock rates."""
    return None if name is None else short(names.cpu(name), _MAX_MODEL_CHARACTERS)


def memory(size_in_bytes: float | None) -> str | None:
    """Return an amount of memory."""
    return None if size_in_bytes is None else f"{round(size_in_bytes / _BYTES_PER_GIB, 1):,g} GiB"


def disks(hardware: Json) -> str | None:
    """Return the number of disks and their total size."""
    total = size(hardware.get("storage"))
    return f"{hardware['disks']} x, {total}" if hardware.get("disks") and total else total


def _now() -> datetime:
    return datetime.now(UTC)
