"""How a machine comes to its ramdisk: decided once, at the start of an inspection. Pure.

Managed: the driver boots the ramdisk itself, by virtual media. Unmanaged: the machine boots from
the network, where somebody else's DHCP and TFTP have the ramdisk. Source: the specification that
merged the inspector into the Bare Metal service (managed and unmanaged inspection), and the
``manage_boot`` parameter of the Introspection API.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ferroscope.domain.model import Node

AGENT: Final = "agent"
VIRTUAL_MEDIA_INTERFACES: Final = ("redfish-virtual-media",)


class Boot(StrEnum):
    """The ways; ``out-of-band`` needs no ramdisk at all."""

    VIRTUAL_MEDIA = "virtual-media"
    NETWORK = "network"
    OPERATOR = "operator"
    OUT_OF_BAND = "out-of-band"


class BootError(Exception):
    """The node asks for something that does not go together; the message says what to change."""


def choose(
    node: Node,
    *,
    manage_boot: bool,
    iso: str,
    boots_itself: bool,
    knows_hardware: bool,
    require_managed: bool,
) -> Boot:
    """Return how ``node`` shall be booted; ``BootError`` where that cannot be.

    ``manage_boot``: the caller leaves booting to us. ``iso``: the ramdisk's image, "" for none.
    ``boots_itself`` and ``knows_hardware``: what the node's driver can do.
    """
    inspect = node.attributes.get("inspect_interface") or AGENT
    if inspect == node.driver and inspect != AGENT and knows_hardware:
        return Boot.OUT_OF_BAND
    if inspect in ("redfish", "ipmi"):
        raise BootError(f"inspect_interface {inspect} does not go with the driver {node.driver}; set it to agent")
    if not manage_boot:
        return Boot.OPERATOR
    asked = node.attributes.get("boot_interface")
    media = asked in VIRTUAL_MEDIA_INTERFACES
    if (media or asked is None) and boots_itself and iso:
        return Boot.VIRTUAL_MEDIA
    if media:
        lacking = "a driver that can" if not boots_itself else "driver_info deploy_iso or [inspector] ramdisk_iso"
        raise BootError(f"boot_interface {asked} needs {lacking}")
    if require_managed:
        raise BootError(
            "the ramdisk would be booted from a network that this service does not manage, "
            "and [inspector] require_managed_boot forbids that"
        )
    return Boot.NETWORK
