"""The hardware of a simulated machine except its NICs: CPU, memory, disks, firmware, PCI devices and topology.

Data that depends only on the model is encoded once and shared as ``msgspec.Raw``.
"""

from __future__ import annotations

from functools import cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, Literal, TypeVar

import msgspec

from ferroscope.core.model import Document
from ferroscope_sim.inventory.catalog import PCI_DEVICES, Disk, Model

# The identity of a simulated machine: MAC and BMC addresses, unique by its index, and its random numbers.
#
# MACs are locally administered (02:fe:…, of more than 176 NICs also 02:fd:… and 02:fc:…) and BMC addresses private
# (10/8, fd00:fe20::/96), so no real machine has them.

T = TypeVar("T")

# Three bytes of a MAC address, less the first and last address of 10/8.
MAX_INDEX: Final = (1 << 24) - 3

_BMC_PORT: Final = 0xB0
_BMC_V4: Final = int(IPv4Address("10.0.0.1"))
_BMC_V6: Final = int(IPv6Address("fd00:fe20::1"))
_MASK_64_BITS: Final = (1 << 64) - 1


class Dice:
    """Random numbers that depend only on the machine's index and a topic (splitmix64, the same everywhere)."""

    def __init__(self, index: int, topic: int = 0) -> None:
        # Mixed, because seeds that differ by the step size would give the same sequence, shifted by one.
        self._state = _mix(_check_index(index) << 8 | topic)

    def bits(self) -> int:
        """Return 64 bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK_64_BITS
        return _mix(self._state)

    def between(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both included."""
        return low + self.bits() % (high - low + 1)

    def pick(self, choices: tuple[T, ...]) -> T:
        return choices[self.bits() % len(choices)]

    def text(self, alphabet: str, length: int) -> str:
        """Return a serial number of at most 12 characters."""
        value = self.bits()
        size = len(alphabet)
        chars = []
        for _ in range(length):
            value, digit = divmod(value, size)
            chars.append(alphabet[digit])
        return "".join(chars)


def _mix(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK_64_BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK_64_BITS
    return value ^ (value >> 31)


def _check_index(index: int) -> int:
    if not 0 <= index <= MAX_INDEX:
        raise ValueError(f"the index of a simulated machine must be between 0 and {MAX_INDEX}, not {index}")
    return index


def macs(index: int) -> tuple[str, ...]:
    """Return the MACs of all 2 to 8 NICs; the first one boots."""
    count = Dice(index, topic=1).pick((2, 2, 3, 4, 4, 4, 6, 8))
    return tuple(_mac(index, port) for port in range(count))


def nic_mac(index: int, number: int) -> str:
    """Return the MAC of any of up to ``MAX_MACS`` NICs; number 0 boots."""
    return _mac(_check_index(index), number)


def pxe_mac(index: int) -> str:
    """Return the MAC of the boot NIC."""
    return _mac(_check_index(index), 0)


def bmc_mac(index: int) -> str:
    return _mac(_check_index(index), _BMC_PORT)


def bmc_address(index: int, version: Literal[4, 6] = 4) -> str:
    """Return the address of the machine's BMC."""
    _check_index(index)
    return str(IPv4Address(_BMC_V4 + index) if version == 4 else IPv6Address(_BMC_V6 + index))


def _mac(index: int, number: int) -> str:
    page, port = (0, number) if number == _BMC_PORT else divmod(number, _BMC_PORT)
    return f"02:{0xFE - page:02x}:{index >> 16:02x}:{index >> 8 & 255:02x}:{index & 255:02x}:{port:02x}"


_HEX: Final = "0123456789ABCDEF"
_THREADS_PER_CORE: Final = 2


def cpu(model: Model) -> Document:
    """Return ``inventory.cpu``."""
    return {
        "model_name": model.cpu.name,
        "frequency": model.cpu.mhz,
        "count": model.cpu.cores * model.sockets * _THREADS_PER_CORE,
        "architecture": "x86_64",
        "flags": _flags(model),
        "socket_count": model.sockets,
    }


def memory(model: Model) -> Document:
    """Return ``inventory.memory``: the installed memory, and the slightly smaller total of the kernel."""
    physical_mb = model.dimms * model.dimm_gb * 1024
    return {"total": physical_mb * 1024 * 1024 - 0x2B5B0000, "physical_mb": physical_mb}


def bmc(index: int, model: Model) -> Document:
    """Return the three keys about the BMC; ipmitool shows ``::/0`` for an unset address."""
    v6 = {"address": bmc_address(index, 6), "unset": "::/0", "none": None}[model.bmc_v6]
    return {"bmc_address": bmc_address(index), "bmc_v6address": v6, "bmc_mac": bmc_mac(index)}


def system_vendor(index: int, model: Model) -> Document:
    """Return ``inventory.system_vendor``, with a serial number in the model's format."""
    return {
        "product_name": model.product,
        "serial_number": Dice(index, topic=3).text(*model.serial),
        "manufacturer": model.manufacturer,
        "firmware": {"vendor": model.bios_vendor, "version": model.bios_version, "build_date": model.bios_date},
    }


def disks(index: int, model: Model, *, limit: int = 24) -> list[Document]:
    """Return ``inventory.disks``: a group of small boot disks, and up to ``limit`` in all."""
    dice = Dice(index, topic=4)
    kinds: list[Disk] = []
    for kind, maximum in model.disks:
        kinds += [kind] * dice.between(1, maximum)
    return [_disk(dice, number, kind) for number, kind in enumerate(kinds[:limit])]


def _disk(dice: Dice, number: int, kind: Disk) -> Document:
    bits = dice.bits()
    # World wide names: 5, then 24 bits of the vendor and 36 of the device.
    wwn = f"0x5002538{bits >> 28:09x}"
    if kind.transport == "nvme":
        name, hctl, path = f"/dev/nvme{number}n1", None, f"pci-0000:{0x81 + number:02x}:00.0-nvme-1"
        wwn = f"eui.{bits:016x}002538b1"
    else:
        name, hctl, path = f"/dev/sd{chr(97 + number)}", f"0:0:{number}:0", f"pci-0000:18:00.0-scsi-0:0:{number}:0"
    return {
        "name": name,
        "model": kind.model,
        "size": kind.size,
        "rotational": kind.rotational,
        "wwn": wwn,
        "serial": f"S{bits % 16**11:011X}",
        "vendor": kind.vendor,
        "wwn_with_extension": wwn,
        "wwn_vendor_extension": None,
        "hctl": hctl,
        "by_path": f"/dev/disk/by-path/{path}",
        "logical_sectors": 512,
        "physical_sectors": 4096,
        "tran": kind.transport,
    }


@cache
def _flags(model: Model) -> msgspec.Raw:
    return _raw(model.cpu.flags)


@cache
def numa_cpus(model: Model) -> msgspec.Raw:
    """Return ``numa_topology.cpus``: one entry for each core, with the threads on it."""
    cores = model.cpu.cores * model.sockets
    return _raw(
        [
            {"cpu": core % model.cpu.cores, "numa_node": core % model.sockets, "thread_siblings": [core, core + cores]}
            for core in range(cores)
        ]
    )


def numa(model: Model, interfaces: list[Document]) -> Document:
    """Return ``numa_topology``."""
    size_kb = model.dimms * model.dimm_gb * 1024 * 1024 // model.sockets
    return {
        "ram": [{"numa_node": node, "size_kb": size_kb - 3_000_000} for node in range(model.sockets)],
        "cpus": numa_cpus(model),
        "nics": [{"name": nic["name"], "numa_node": number % model.sockets} for number, nic in enumerate(interfaces)],
    }


def pci_devices(model: Model, count: int) -> msgspec.Raw:
    """Return ``pci_devices`` with ``count`` entries, all of the same length as JSON."""
    return msgspec.Raw(b"[" + b",".join([_pci_device(number, model.sockets) for number in range(count)]) + b"]")


@cache
def _pci_device(number: int, sockets: int) -> bytes:
    vendor, product, kind, revision = PCI_DEVICES[number % len(PCI_DEVICES)]
    slot, function = divmod(number, 8)
    bus, device = divmod(slot, 32)
    domain, bus = divmod(bus, 256)
    return msgspec.json.encode(
        {
            "vendor_id": vendor,
            "product_id": product,
            "class": kind,
            "revision": revision,
            "bus": f"{domain:04x}:{bus:02x}:{device:02x}.{function}",
            "numa_node_id": str(device % sockets),
        }
    )


PCI_DEVICE_SIZE: Final = len(_pci_device(0, 1)) + 1
"""Bytes per additional entry."""


def dmi(index: int, model: Model, *, dimms: int) -> Document:
    """Return ``dmi`` as decoded by dmidecode, with this many memory modules."""
    dice = Dice(index, topic=5)
    return {
        "bios": _bios(model),
        "cpu": [_processor(model, socket) for socket in range(model.sockets)],
        "memory": {
            "Location": "System Board Or Motherboard",
            "Use": "System Memory",
            "Error Correction Type": "Multi-bit ECC",
            "Maximum Capacity": "6 TB",
            "Error Information Handle": "Not Provided",
            "Number Of Devices": dimms,
            "devices": [_dimm(dice, model, slot) for slot in range(dimms)],
        },
    }


def _bios(model: Model) -> Document:
    return {
        "Handle": "Handle 0x0000, DMI type 0, 26 bytes",
        "Vendor": model.bios_vendor,
        "Version": model.bios_version,
        "Release Date": model.bios_date,
        "Address": "0xF0000",
        "Runtime Size": "64 kB",
        "ROM Size": "32 MB",
        "Characteristics": [
            "PCI is supported",
            "BIOS is upgradeable",
            "Boot from CD is supported",
            "Selectable boot is supported",
            "ACPI is supported",
            "USB legacy is supported",
            "Function key-initiated network boot is supported",
            "UEFI is supported",
        ],
    }


def _processor(model: Model, socket: int) -> Document:
    return {
        "Handle": f"Handle 0x{0x400 + socket:04X}, DMI type 4, 48 bytes",
        "Socket Designation": f"CPU{socket + 1}",
        "Type": "Central Processor",
        "Family": model.cpu.family,
        "Manufacturer": model.cpu.maker,
        "Version": model.cpu.name,
        "Voltage": "1.8 V",
        "Max Speed": "4000 MHz",
        "Status": "Populated, Enabled",
        "Upgrade": f"Socket {model.cpu.socket}",
        "Serial Number": "Not Specified",
        "Asset Tag": "Not Specified",
        "Part Number": "Not Specified",
        "Core Count": str(model.cpu.cores),
        "Core Enabled": str(model.cpu.cores),
        "Thread Count": str(model.cpu.cores * _THREADS_PER_CORE),
    }


def _dimm(dice: Dice, model: Model, slot: int) -> Document:
    return {
        "Handle": f"Handle 0x{0x1100 + slot:04X}, DMI type 17, 92 bytes",
        "Array Handle": "0x1000",
        "Error Information Handle": "Not Provided",
        "Total Width": "72 bits",
        "Data Width": "64 bits",
        "Size": f"{model.dimm_gb} GB",
        "Form Factor": "DIMM",
        "Set": "1",
        "Locator": f"{chr(65 + slot % 2)}{slot // 2 + 1}",
        "Bank Locator": "Not Specified",
        "Type": model.dimm_type,
        "Type Detail": "Synchronous Registered (Buffered)",
        "Speed": "3200 MT/s",
        "Manufacturer": model.dimm_maker,
        "Serial Number": dice.text(_HEX, 8),
        "Asset Tag": dice.text("0123456789", 8),
        "Part Number": model.dimm_part,
        "Rank": "2",
        "Configured Memory Speed": "3200 MT/s",
        "Configured Voltage": "1.2 V",
        "Memory Technology": "DRAM",
        "Memory Operating Mode Capability": "Volatile memory",
        "Volatile Size": f"{model.dimm_gb} GB",
    }


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
