"""How a machine comes to its ramdisk: decided once, at the start of an inspection. Pure.

Managed: the driver boots the ramdisk itself, by virtual media. Unmanaged: the machine boots from
the network, where somebody else's DHCP and TFTP have the ramdisk. Source: the specification that
merged the inspector into the Bare Metal service (managed and unmanaged inspection), and the
``manage_boot`` parameter of the Introspection API.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Final

from ferroscope.domain.model import Node

AGENT: Final = "agent"
_VIRTUAL_MEDIA: Final = "-virtual-media"


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
    drivers: Collection[str],
    manage_boot: bool,
    iso: str,
    boots_itself: bool,
    knows_hardware: bool,
    require_managed: bool,
) -> Boot:
    """Return how ``node`` shall be booted; ``BootError`` where that cannot be.

    ``drivers``: all that nodes may have here; two interfaces of each have its name.
    ``manage_boot``: the caller leaves booting to us. ``iso``: the ramdisk's image, "" for none.
    ``boots_itself`` and ``knows_hardware``: what the node's driver can do.
    """
    inspect = node.attributes.get("inspect_interface") or AGENT
    if inspect != AGENT and inspect in {*drivers, node.driver}:
        if inspect == node.driver and knows_hardware:
            return Boot.OUT_OF_BAND
        raise BootError(f"inspect_interface {inspect} does not go with the driver {node.driver}; set it to agent")
    if not manage_boot:
        return Boot.OPERATOR
    asked = node.attributes.get("boot_interface")
    own = f"{node.driver}{_VIRTUAL_MEDIA}"
    if asked in (own, None) and boots_itself and iso:
        return Boot.VIRTUAL_MEDIA
    if asked in {own, *(f"{driver}{_VIRTUAL_MEDIA}" for driver in drivers)}:
        able = boots_itself and asked == own
        lacking = "driver_info deploy_iso or [inspector] ramdisk_iso" if able else "a driver that can"
        raise BootError(f"boot_interface {asked} needs {lacking}")
    if require_managed:
        raise BootError(
            "the ramdisk would be booted from a network that this service does not manage, "
            "and [inspector] require_managed_boot forbids that"
        )
    return Boot.NETWORK
