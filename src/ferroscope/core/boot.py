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
from urllib.parse import urlsplit

from ferroscope.core.model import Node

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


# A node's capabilities, in both forms in which operators write them.
#
# Source: the Bare Metal API reference: ``properties.capabilities`` is a text ``a:b,c:d`` or an object.


def capabilities(node: Node) -> dict[str, str]:
    """Return the capabilities by name; what is no capability is left out."""
    stored = node.properties.get("capabilities")
    if isinstance(stored, dict):
        return {str(name): str(value) for name, value in stored.items()}
    if not isinstance(stored, str):
        return {}
    pairs = (pair.partition(":") for pair in stored.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def wanted_boot_mode(node: Node) -> str | None:
    """Return ``uefi`` or ``bios`` where the node's capabilities ask for one."""
    mode = capabilities(node).get("boot_mode")
    return mode if mode in ("uefi", "bios") else None


# The kernel command line of the inspection ramdisk, built in this one place, whoever boots it.
#
# Virtual media, the PXE configuration that we generate and an operator's own all get the same
# words. Pure: text in, text out. The names are ironic-python-agent's; see its documentation of
# inspection (``ipa-inspection-callback-url``, ``ipa-collect-lldp``).

CALLBACK_PATH: Final = "/v1/continue_inspection"


def callback_url(base: str) -> str:
    """Return where the ramdisk posts its data, from the base URL of the Bare Metal API.

    Raises ``ValueError``, with what is wrong, where ``base`` is no address that a ramdisk could use.
    """
    try:
        parts = urlsplit(base)
    except ValueError as exc:
        raise ValueError(f"{base!r} is no URL: {exc}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{base!r} is no http or https URL such as http://192.0.2.1:6385")
    if any(sign.isspace() for sign in base):
        raise ValueError(f"{base!r} has a space in it, which would end the kernel parameter there")
    return base.rstrip("/") + CALLBACK_PATH


def kernel_params(callback: str, *, extra: str = "", collect_lldp: bool = True, boot_method: str = "") -> str:
    """Return the parameters as one line, without duplicates; what ``extra`` says wins.

    ``callback``: the whole URL to post to. ``extra``: the operator's own, parted by spaces.
    ``boot_method``: ``vmedia`` makes the agent look for more parameters on a virtual medium.
    """
    ours = {
        "ipa-inspection-callback-url": callback,
        "ipa-collect-lldp": "1" if collect_lldp else "",
        "boot_method": boot_method,
    }
    theirs = extra.split()
    named = {word.partition("=")[0] for word in theirs}
    return " ".join([*theirs, *(f"{name}={value}" for name, value in ours.items() if value and name not in named)])
