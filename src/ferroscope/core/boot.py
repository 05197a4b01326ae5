"""How a machine boots the ramdisk, decided once at the start of an inspection. Pure.

Managed: the driver boots the ramdisk by virtual media, or the machine loads it by an iPXE script of ours. Unmanaged:
the machine boots from a network whose DHCP and TFTP servers are managed elsewhere. Source: the specification that
merged the inspector into the Bare Metal service (managed and unmanaged inspection), and the ``manage_boot`` parameter
of the Introspection API.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from ferroscope.core.interfaces import AGENT, NO_INSPECT, NOOP, UEFI_HTTP, VIRTUAL_MEDIA, own_names
from ferroscope.core.model import Entry, Node
from ferroscope_client.core.host_spelling import refusal_of_urls


class Boot(StrEnum):
    """The boot methods; ``out-of-band`` needs no ramdisk.

    ``ipxe``: a script of this service boots the ramdisk; ``network``: the servers of the boot network do.
    """

    VIRTUAL_MEDIA = "virtual-media"
    IPXE = "ipxe"
    NETWORK = "network"
    OPERATOR = "operator"
    OUT_OF_BAND = "out-of-band"


# Intents of a start, and steps of the timeline, by which the machine boots for its inspection.
POWER_ON: Final = "power on"
REBOOT: Final = "reboot"
# The machine asks a DHCP server, so a PXE filter has to let it pass.
FROM_NETWORK: Final = frozenset({Boot.IPXE, Boot.NETWORK})
# The methods that switch the machine's power.
POWERED: Final = FROM_NETWORK | {Boot.VIRTUAL_MEDIA}


def since_boot(newest_first: Sequence[Entry]) -> list[Entry]:
    """Return the entries since the machine's last boot, all of them without a boot, newest first.

    Earlier entries say nothing about the boot. Times are compared, because the steps of a start are written at its end,
    when the machine may have called already.
    """
    booted_at = next((entry.at for entry in newest_first if entry.step in (POWER_ON, REBOOT)), None)
    if booted_at is None:
        return list(newest_first)
    return [entry for entry in newest_first if entry.at >= booted_at]


def disables_power_off(node: Node) -> bool:
    """Whether this machine must not be powered off."""
    return bool(node.attributes.get("disable_power_off"))


def keeps_boot_order(node: Node) -> bool:
    """Whether the operator has set the machine's boot order, which no command may change."""
    return node.attributes.get("management_interface") == NOOP


class BootError(Exception):
    """The node's settings contradict each other; the message says what to change."""


def choose(
    node: Node,
    *,
    drivers: Collection[str],
    manage_boot: bool,
    iso: str,
    boots_itself: bool,
    knows_hardware: bool,
    require_managed: bool,
    scripted: bool = False,
) -> Boot:
    """Return how to boot ``node``; ``BootError`` if its settings contradict each other.

    ``drivers``: all enabled drivers; interfaces of each are named after it (``own_names``).
    ``manage_boot``: the service boots the machine. ``iso``: the ramdisk's image, "" for none.
    ``boots_itself`` and ``knows_hardware``: capabilities of the node's driver. ``scripted``: the api can serve an iPXE
    script that boots the ramdisk.
    """
    inspect = node.attributes.get("inspect_interface") or AGENT
    if inspect == NO_INSPECT:
        raise BootError(f"inspect_interface {inspect!r} means that the node is never inspected; set it to agent")
    if inspect != AGENT and inspect in {name for driver in (*drivers, node.driver) for name in own_names(driver)}:
        if inspect in own_names(node.driver) and knows_hardware:
            return Boot.OUT_OF_BAND
        raise BootError(f"inspect_interface {inspect!r} does not match driver {node.driver!r}; set it to agent")
    if not manage_boot:
        return Boot.OPERATOR
    asked = node.attributes.get("boot_interface")
    own = asked is not None and asked in _virtual_media(node.driver)
    if (asked is None or own) and boots_itself and iso:
        return Boot.VIRTUAL_MEDIA
    if own or (asked is not None and any(asked in _virtual_media(driver) for driver in drivers)):
        able = boots_itself and own
        lacking = "driver_info deploy_iso or [inspector] ramdisk_iso" if able else "a driver that supports it"
        raise BootError(f"boot_interface {asked!r} requires {lacking}")
    if scripted and (asked == Boot.IPXE or (asked is None and require_managed)):
        return Boot.IPXE
    if require_managed:
        raise BootError(
            "the ramdisk would boot from a network that this service does not manage, which [inspector] "
            "require_managed_boot forbids; boot_interface ipxe requires [boot] machine_script_url, and URLs of kernel "
            "and ramdisk"
        )
    return Boot.NETWORK


def _virtual_media(driver: str) -> tuple[str, ...]:
    """Return the names of the boot interfaces by which this driver has a machine boot an image.

    A machine that should boot an image by UEFI HTTP gets it as a virtual medium instead; it has no boot network.
    """
    return (UEFI_HTTP, *(f"{name}{VIRTUAL_MEDIA}" for name in own_names(driver)))


# A node's capabilities, in both accepted forms. Source: the Bare Metal API reference: ``properties.capabilities`` is a
# string ``a:b,c:d`` or an object.


def capabilities(node: Node) -> dict[str, str]:
    """Return the capabilities by name; malformed entries are ignored."""
    stored = node.properties.get("capabilities")
    if isinstance(stored, dict):
        return {str(name): str(value) for name, value in stored.items()}
    if not isinstance(stored, str):
        return {}
    pairs = (pair.partition(":") for pair in stored.split(","))
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def wanted_boot_mode(node: Node) -> str | None:
    """Return ``uefi`` or ``bios`` if the node's capabilities request one."""
    mode = capabilities(node).get("boot_mode")
    return mode if mode in ("uefi", "bios") else None


# The kernel command line of the inspection ramdisk: the same for virtual media, the generated PXE configuration and
# an operator's own. Pure: text in, text out. The names are ironic-python-agent's; see its documentation of
# inspection (``ipa-inspection-callback-url``, ``ipa-collect-lldp``).

CALLBACK_PATH: Final = "/v1/continue_inspection"
CALLBACK_PARAMETER: Final = "ipa-inspection-callback-url"
AGENT_TOKEN_PARAMETER: Final = "ipa-agent-token"  # noqa: S105  # a name

# The option of iPXE's download commands: milliseconds without a byte after which iPXE gives up on a server.
IPXE_PATIENCE: Final = "--timeout 60000"


def callback_url(base: str) -> str:
    """Return the URL to which the ramdisk posts its data, from the base URL of the Bare Metal API.

    ``ValueError``, with the reason, if a ramdisk could not use ``base``.
    """
    try:
        parts = urlsplit(base)
    except ValueError as exc:
        raise ValueError(f"invalid URL {base!r}: {exc}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"invalid URL {base!r}: expected http://HOST[:PORT] or https://HOST[:PORT]")
    if why := refusal_of_urls(base):
        raise ValueError(f"invalid URL {base!r}: {why}")
    if any(sign.isspace() for sign in base):
        raise ValueError(f"invalid URL {base!r}: a kernel parameter cannot contain spaces")
    return base.rstrip("/") + CALLBACK_PATH


def kernel_params(
    callback: str, *, extra: str = "", collect_lldp: bool = True, boot_method: str = "", agent_token: str = ""
) -> str:
    """Return the parameters as one line, without duplicates; ``extra`` takes precedence.

    ``callback``: the full URL to post to. ``extra``: the operator's parameters, separated by spaces.
    ``boot_method``: ``vmedia`` makes the agent look for more parameters on a virtual medium.
    ``agent_token``: the agent's token for heartbeats, "" if it gets one by its lookup.
    """
    ours = {
        CALLBACK_PARAMETER: callback,
        "ipa-collect-lldp": "1" if collect_lldp else "",
        "boot_method": boot_method,
        AGENT_TOKEN_PARAMETER: agent_token,
    }
    theirs = extra.split()
    named = _names(theirs)
    return " ".join([*theirs, *(f"{name}={value}" for name, value in ours.items() if value and name not in named)])


# Consoles of the ramdisk by architecture: the screen, and what Serial over LAN shows. On arm64 the firmware names them.
CONSOLES: Final = {"amd64": "console=tty0 console=ttyS0,115200n8", "arm64": ""}


def with_consoles(extra: str, consoles: str) -> str:
    """Return the operator's parameters, with these consoles unless they have some."""
    return " ".join(extra.split() if "console" in _names(extra.split()) else [consoles, *extra.split()])


def overrides_callback(extra: str) -> bool:
    """Whether the operator's own parameters contain the callback URL, so that ours, with the secret, is not used."""
    return CALLBACK_PARAMETER in _names(extra.split())


def _names(words: Iterable[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}
