"""The complete callback body of a simulated machine, including its NICs, in its own or a requested size.

The size is adjusted as real bodies differ: by PCI devices, memory modules, and for small ones fewer disks and LLDP only
on the boot NIC.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Final

import msgspec

from ferroscope.core.model import Document
from ferroscope_sim.inventory import hardware
from ferroscope_sim.inventory.catalog import MODELS, SWITCHES, CatalogNic, Model
from ferroscope_sim.inventory.hardware import Dice, macs, pxe_mac

# LLDP TLVs as recorded by the ramdisk: pairs of type and value, the value in hexadecimal.
#
# Source: IEEE 802.1AB for the basic ones, its annexes for the 802.1 and 802.3 organizational ones.

Tlv = tuple[int, str]

_BRIDGE_AND_ROUTER = (1 << 2) | (1 << 4)
_IEEE_802_1 = bytes.fromhex("0080c2")
_IEEE_802_3 = bytes.fromhex("00120f")


class Neighbour(msgspec.Struct, frozen=True):
    """The switch port that a NIC is connected to."""

    chassis_mac: str
    system_name: str
    system_description: str
    management_address: str
    port_name: str
    port_description: str
    vlan: int
    mtu: int


def tlvs(neighbour: Neighbour) -> list[Tlv]:
    """Return everything that the neighbor announces, in the order of the frame."""
    return [
        _chassis(neighbour.chassis_mac),
        _tlv(2, b"\x05" + neighbour.port_name.encode()),
        _tlv(3, struct.pack("!H", 120)),
        _tlv(4, neighbour.port_description.encode()),
        *_system(neighbour.system_name, neighbour.system_description, neighbour.management_address),
        _tlv(127, _IEEE_802_1 + b"\x01" + struct.pack("!H", neighbour.vlan)),
        _vlan_name(neighbour.vlan),
        _tlv(127, _IEEE_802_1 + b"\x07" + struct.pack("!BI", 1, 0)),
        _tlv(127, _IEEE_802_3 + b"\x01" + struct.pack("!BHH", 3, 0x6C01, 30)),
        _tlv(127, _IEEE_802_3 + b"\x04" + struct.pack("!H", neighbour.mtu)),
        (0, ""),
    ]


def _tlv(kind: int, value: bytes) -> Tlv:
    return kind, value.hex()


def _chassis(mac: str) -> Tlv:
    return 1, "04" + mac.replace(":", "")


@lru_cache(maxsize=1024)
def _system(name: str, description: str, address: str) -> tuple[Tlv, ...]:
    """Return what is the same on all ports of one switch."""
    management = struct.pack("!BB4sBIB", 5, 1, IPv4Address(address).packed, 2, 10, 0)
    return (
        _tlv(5, name.encode()),
        _tlv(6, description.encode()),
        _tlv(7, struct.pack("!HH", _BRIDGE_AND_ROUTER, _BRIDGE_AND_ROUTER)),
        _tlv(8, management),
    )


@lru_cache(maxsize=256)
def _vlan_name(vlan: int) -> Tlv:
    name = f"v{vlan}_provisioning".encode()
    return _tlv(127, _IEEE_802_1 + b"\x03" + struct.pack("!HB", vlan, len(name)) + name)


_NETWORK: Final = int(IPv4Address("172.16.0.10"))
_NETWORK_SIZE: Final = (1 << 20) - 20
_MACHINES_PER_RACK: Final = 40


def nic_records(index: int, model: Model, *, lldp_everywhere: bool = True) -> list[Document]:
    """Return the interface records, in the arbitrary order of a kernel; the first MAC booted.

    Without ``lldp_everywhere`` only the boot NIC is connected.
    """
    dice = Dice(index, topic=2)
    records = []
    for number, mac in enumerate(macs(index)):
        booted = number == 0
        connected = booted or (lldp_everywhere and dice.between(0, 3) > 0)
        records.append(_record(index, number, mac, model, booted=booted, connected=connected))
    start = dice.between(0, len(records) - 1)
    return records[start:] + records[:start]


def _record(index: int, number: int, mac: str, model: Model, *, booted: bool, connected: bool) -> Document:
    card, port = divmod(number, 2)
    nic = model.nics[card % len(model.nics)]
    name = model.interface.format(card=card + 1, port=port, index=number)
    return {
        "name": name,
        "mac_address": mac,
        "ipv4_address": str(IPv4Address(_NETWORK + index % _NETWORK_SIZE)) if booted else None,
        "ipv6_address": f"{_link_local(mac)}%{name}" if connected else None,
        "has_carrier": connected,
        "lldp": _lldp(index, number, nic) if connected else [],
        "vendor": nic.vendor,
        "product": nic.product,
        "client_id": None,
        "biosdevname": None,
        "speed_mbps": nic.mbps,
        "pci_address": f"0000:{0x31 + 0x10 * card:02x}:00.{port}",
        "driver": nic.driver,
    }


def _link_local(mac: str) -> str:
    """Return the address that the kernel derives from a MAC (RFC 4291, appendix A); ours begin with 02."""
    _first, b, c, d, e, f = (int(part, 16) for part in mac.split(":"))
    return f"fe80::{b:x}:{c << 8 | 0xFF:x}:fe{d:02x}:{e << 8 | f:x}"


def _lldp(index: int, number: int, nic: CatalogNic) -> list[Tlv]:
    """Return the LLDP data of this NIC's switch: two switches for each rack of 40 machines."""
    rack, unit = divmod(index, _MACHINES_PER_RACK)
    pair = number % 2
    switch = SWITCHES[rack % len(SWITCHES)]
    port = switch.port.format(port=1 + unit + _MACHINES_PER_RACK * (number // 2))
    vlan = 100 + 10 * (number // 2)
    return tlvs(
        Neighbour(
            chassis_mac=f"02:fd:{rack >> 16 & 255:02x}:{rack >> 8 & 255:02x}:{rack & 255:02x}:{pair:02x}",
            system_name=f"leaf{pair + 1}-r{rack:04d}.sim.example",
            system_description=switch.description,
            management_address=str(IPv4Address(0xC0A80000 + (2 * rack + pair) % 65536)),
            port_name=port,
            port_description=f"node {index} {nic.driver} {number}" if pair else port,
            vlan=vlan,
            mtu=9216 if nic.mbps >= 10000 else 1522,
        )
    )


MIN_SIZE: Final = 10_000
MAX_SIZE: Final = 4_000_000
"""The range of ``size``, in bytes of JSON."""

_MIN_DMI_BYTES: Final = 24_000
_DIMM_BYTES: Final = 800


def generate(index: int, *, size: int | None = None, error: str | None = None) -> bytes:
    """Return the JSON body that the ramdisk of machine ``index`` posts, 10 to 60 KB depending on the index.

    With ``size`` it has that many bytes, within 150; ``error`` is the error that the ramdisk reports.
    """
    dice = Dice(index, topic=6)
    wanted = dice.between(11_000, 58_000) if size is None else size
    if not MIN_SIZE <= wanted <= MAX_SIZE:
        raise ValueError(f"the size of an inventory must be between {MIN_SIZE} and {MAX_SIZE} bytes, not {wanted}")
    model = dice.pick(MODELS)
    body = _body(index, model, error, roomy=True)
    room = wanted - len(msgspec.json.encode(body))
    if room < 0:
        body = _body(index, model, error, roomy=False)
        room = wanted - len(msgspec.json.encode(body))
    if wanted >= _MIN_DMI_BYTES:
        dmi = hardware.dmi(index, model, dimms=min(model.dimms, max(2, room // (2 * _DIMM_BYTES))))
        room -= len(msgspec.json.encode(dmi))
        body["dmi"] = dmi
    body["pci_devices"] = hardware.pci_devices(model, max(0, room // hardware.PCI_DEVICE_SIZE))
    return msgspec.json.encode(body)


def document(index: int, *, size: int | None = None, error: str | None = None) -> Document:
    """Return what ``generate`` encodes, as a new document."""
    body: Document = msgspec.json.decode(generate(index, size=size, error=error))
    return body


def _body(index: int, model: Model, error: str | None, *, roomy: bool) -> Document:
    """Return the body without padding; not ``roomy``: as small as possible for this machine."""
    interfaces = nic_records(index, model, lldp_everywhere=roomy)
    disks = hardware.disks(index, model, limit=24 if roomy else 3)
    mac = pxe_mac(index)
    body: Document = {
        "inventory": {
            "interfaces": interfaces,
            "cpu": hardware.cpu(model),
            "disks": disks,
            "memory": hardware.memory(model),
            **hardware.bmc(index, model),
            "system_vendor": hardware.system_vendor(index, model),
            "boot": {
                "current_boot_mode": model.boot_mode,
                # pxelinux, which boots BIOS machines, passes the MAC on in its own format.
                "pxe_interface": mac if model.boot_mode == "uefi" else f"01-{mac.replace(':', '-')}",
            },
            "hostname": f"sim-{index}",
        },
        "root_disk": disks[0],
        "boot_interface": mac,
        "configuration": {
            "collectors": ["default", "logs", "pci-devices", "dmi-decode", "numa-topology"],
            "managers": [{"name": "generic_hardware_manager", "version": "1.2"}],
        },
        "error": error,
    }
    if roomy:
        body["numa_topology"] = hardware.numa(model, interfaces)
    return body
