"""MAC addresses: as firmware and boot loaders spell them, the stored form, and those that identify no machine. Pure.

Source: the spellings seen in ramdisk inventories, and pxelinux's ``01-aa-bb-…`` form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_MAC: Final = re.compile(r"[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\Z")
PLACEHOLDER_MACS: Final = frozenset({"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"})
"""Placeholders that firmware reports for an unknown address; many machines share them, so they identify none."""

_PXELINUX: Final = re.compile(r"01-(?P<mac>[0-9a-f]{2}(?:-[0-9a-f]{2}){5})\Z")


def normalized_mac(value: object) -> str | None:
    """Return ``value`` as ``aa:bb:cc:dd:ee:ff``, or None if it is not a MAC address."""
    if not isinstance(value, str) or len(value) > 20:
        return None
    text = value.lower()
    pxelinux = _PXELINUX.match(text)
    if pxelinux:
        text = pxelinux["mac"]
    return text.replace("-", ":") if _MAC.match(text) else None


# No separator, or the same one between pairs, groups of four (Cisco, Huawei) or of six digits (HP).
_WRITTEN_MAC: Final = re.compile(
    r"(?:0x)?(?:[0-9a-f]{12}|[0-9a-f]{6}[:. -][0-9a-f]{6}|[0-9a-f]{4}([:. -])[0-9a-f]{4}\1[0-9a-f]{4}"
    r"|[0-9a-f]{2}([:. -])[0-9a-f]{2}(?:\2[0-9a-f]{2}){4})"
)


def written_mac(value: object) -> str | None:
    """Return the MAC address that a machine, a switch or a person wrote; None if it is not a MAC address."""
    text = value.strip(" \t\r\n").lower() if isinstance(value, str) and len(value) < _MAX_BOOTIF else ""
    if not _WRITTEN_MAC.fullmatch(text):
        return normalized_mac(text)
    return bytes.fromhex(re.sub(r"^0x|[:. -]", "", text)).hex(":")


_BOOTIF: Final = re.compile(r"\s*(?:bootif=)?[\"']?([0-9a-f]{2}(?:[:.-]?[0-9a-f]{2})*)[\"']?\s*\Z")
# Lengths of an address besides Ethernet's: a GUID of InfiniBand, and the address of IP over InfiniBand, which ends with
# a GUID. Boot loaders may put the ARP hardware type before any of them.
_ETHERNET, _GUID, _INFINIBAND = 6, 8, 20
_BOOTIF_LENGTHS: Final = {length + more: length for length in (_ETHERNET, _GUID, _INFINIBAND) for more in (0, 1)}


def boot_mac(value: object) -> str | None:
    """Return the MAC of the NIC that booted, as boot loaders and ramdisks spell it; None if there is none.

    The spellings are pxelinux's BOOTIF (``01-aa-bb-…``), also with the type of other hardware (``20-…`` is InfiniBand)
    or without a type, with colons or without separators, in upper or lower case. An InfiniBand address gives the MAC
    that ironic-python-agent derives from its GUID: the first three and the last three bytes.
    """
    raw = _octets(value)
    if len(raw) not in _BOOTIF_LENGTHS:
        return None
    address = raw[-_BOOTIF_LENGTHS[len(raw)] :]
    return (address if len(address) == _ETHERNET else address[-_GUID:-5] + address[-3:]).hex(":")


def _octets(value: object) -> bytes:
    parsed = _BOOTIF.match(value.lower()) if isinstance(value, str) and len(value) < _MAX_BOOTIF else None
    return bytes.fromhex(re.sub(r"[:.-]", "", parsed[1])) if parsed else b""


_MAX_BOOTIF: Final = 80
# Redfish's names for the protocol of a port or function -> the lengths that its address may have. Other protocols are
# not NICs: 8 bytes of Fibre Channel are a WWN.
_ADDRESSES: Final = {
    "": (_ETHERNET, _INFINIBAND),
    "ethernet": (_ETHERNET,),
    "infiniband": (_ETHERNET, _GUID, _INFINIBAND),
}
_GUID_MIDDLES: Final = frozenset({b"\xff\xfe", b"\x03\x00"})
"""The bytes between manufacturer and number in the GUIDs of InfiniBand: of EUI-64, and of Mellanox."""


def bmc_mac(value: object, protocol: object = None) -> str | None:
    """Return the MAC of a NIC that a BMC shows, ``boot_mac`` of InfiniBand; None if it has none, or is no NIC.

    Without a ``protocol``, the form of the address distinguishes a GUID from a WWN of Fibre Channel.
    """
    mac = identifying_mac(boot_mac(value))
    lengths = _ADDRESSES.get(str(protocol or "").lower(), ())
    octets = _octets(value)
    is_guid = not protocol and len(octets) == _GUID and octets[3:5] in _GUID_MIDDLES
    return mac if len(octets) in lengths or is_guid else None


def is_local(mac: str) -> bool:
    """Whether software, not the manufacturer, chose this normalized MAC."""
    return bool(int(mac[:2], 16) & 2)


def local_last(macs: Iterable[str]) -> list[str]:
    """Return the normalized MACs in order, with those that software chose last."""
    return sorted(macs, key=lambda mac: (is_local(mac), mac))


def identifying_mac(value: object) -> str | None:
    """Return the normalized MAC, or None if it is invalid, a placeholder, or a group address, which no NIC has."""
    address = normalized_mac(value)
    return None if address is None or address in PLACEHOLDER_MACS or int(address[:2], 16) & 1 else address


# MAC addresses that many machines have, so they identify none: ``[inspector] ignored_macs``.
#
# They stay in the inventory, but never become ports and never identify, or contradict, a machine.

KNOWN: Final = "known"
"""The word that stands for ``KNOWN_MACS`` in a list of patterns."""

KNOWN_MACS: Final[dict[str, str]] = {
    # Hosts of unrelated sites show it with the address 169.254.3.1, such as Supermicro X11 to H13 and ARS ("Insyde
    # RNDIS/Ethernet Gadget"); it is also in the NIC example of stmcginnis/gofish (redfish/networkinterface_test.go).
    "be:3a:f2:b6:05:9f": "USB NIC of BMCs with Insyde or AMI firmware, such as Supermicro's",
    # The examples of HPE's iLO documentation show "Manager Virtual Network Interface" with 0A:CA:FE:F0:0D:04 for iLO 5
    # and 6; HPE's OpenBMC gives the same to its own end, and the other one to the host's.
    "0a:ca:fe:f0:0d": "virtual NIC of HPE iLO",
    "fa:4b:7f:fc:bc:02": "virtual NIC of HPE's OpenBMC",
    # Linux, drivers/platform/mellanox/mlxbf-tmfifo.c, and Mellanox/rshim-user-space: defaults of both ends.
    "00:1a:ca:ff:ff": "NIC between a host and its NVIDIA BlueField (tmfifo_net0)",
}
"""Addresses that firmware or drivers give to all machines, as in the public sources named here.

BMCs of Dell and Lenovo give each machine an address of its own, which identifies it. metal3-io/metal3-docs#595 and
bb-Ricardo/netbox-sync#280 describe what happens where they do not.
"""

IGNORED_PATTERN: Final = r"(?i)^(known|[0-9a-f?]{2}([:-][0-9a-f?]{2}){0,5})\Z"
"""A MAC or its beginning, with ``?`` for any digit; or ``known``."""


class IgnoredMacs:
    """A set of MACs, given by patterns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """``ValueError`` if a pattern is invalid, or matches all machines."""
        all_patterns = [pattern for item in patterns for pattern in (KNOWN_MACS if item.lower() == KNOWN else (item,))]
        self._match = re.compile("|".join(map(_expression, all_patterns)) or r"(?!)").match

    def __contains__(self, mac: object) -> bool:
        return isinstance(mac, str) and self._match(mac) is not None

    def identifying(self, value: object) -> str | None:
        """Return the normalized MAC if it may identify a machine; otherwise None."""
        mac = identifying_mac(value)
        return None if mac is None or self._match(mac) is not None else mac


def _expression(pattern: str) -> str:
    text = pattern.lower().replace("-", ":")
    if not re.match(IGNORED_PATTERN, text):
        raise ValueError(f"{pattern!r} is not a MAC address or its beginning, such as 02:00:5e or 0a:ca:fe:f0:0d:0?")
    if not set(text) - set("?:"):
        raise ValueError(f"{pattern!r} matches every MAC address, so that no machine could be identified")
    return re.escape(text).replace(r"\?", "[0-9a-f]")
