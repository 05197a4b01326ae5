"""The NICs of a simulated machine: interface records with addresses and LLDP."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

from ferroscope.domain.model import Document
from ferroscope.sim.inventory.catalog import SWITCHES, Model, Nic
from ferroscope.sim.inventory.identity import Dice, macs
from ferroscope.sim.inventory.lldp import Neighbour, Tlv, tlvs

_NETWORK: Final = int(IPv4Address("172.16.0.10"))
_NETWORK_SIZE: Final = (1 << 20) - 20
_RACK: Final = 40


def interfaces(index: int, model: Model, *, lldp_everywhere: bool = True) -> list[Document]:
    """Return the interface records, as unordered as the kernel finds them; the first MAC booted.

    Without ``lldp_everywhere`` only the NIC that booted is connected.
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


def _lldp(index: int, number: int, nic: Nic) -> list[Tlv]:
    """Return what the switch on this NIC says: two switches on top of each rack of 40 machines."""
    rack, unit = divmod(index, _RACK)
    pair = number % 2
    switch = SWITCHES[rack % len(SWITCHES)]
    port = switch.port.format(port=1 + unit + _RACK * (number // 2))
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
