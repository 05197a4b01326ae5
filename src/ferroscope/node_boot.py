"""How a node boots its ramdisk, and the iPXE script that the api serves one machine. Source: ipxe.org/cmd.

With ``[boot] machine_script_url``, the script of the boot hosts first runs the machine's own: it sets the variables
``secret`` and ``token`` if an inspection waits for the machine. If the node's boot interface is ``ipxe``, it boots the
machine itself, with the node's own kernel and ramdisk. The ramdisk's parameters are the same as with virtual media.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

import msgspec

from ferroscope.config.options import BootSettings, Settings
from ferroscope.contracts.bmc import Bmc, OutOfBand, RamdiskBoot
from ferroscope.contracts.store import Query
from ferroscope.core import callback_secret
from ferroscope.core.boot import (
    CONSOLES,
    FROM_NETWORK,
    IPXE_PATIENCE,
    Boot,
    BootError,
    callback_url,
    choose,
    kernel_params,
    overrides_callback,
    with_consoles,
)
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Node
from ferroscope.db import Transaction

# In [boot] http_url it stands for the address of the boot host.
HOST: Final = "{host}"
IPXE_ARGUMENTS: Final = "initrd=ramdisk BOOTIF=01-${netX/mac:hexhyp}"
# The same consoles as in the ISO. On other architectures, the firmware names them.
SET_CONSOLES: Final = f"iseq ${{buildarch}} arm64 || set consoles {CONSOLES['amd64']}"
CONSOLES_VARIABLE: Final = "${consoles}"
SERVER_VARIABLE: Final = "${next-server}"
# With proxy DHCP, the server that assigns the address may name itself, as Windows' does, but serves no boot files.
PROXY_VARIABLE: Final = "${proxydhcp/next-server}"


class RamdiskFiles(msgspec.Struct, frozen=True):
    """URLs of a node's kernel and ramdisk, and of the API to which it posts."""

    kernel: str
    ramdisk: str
    callback: str


def machine_script(secret: str | None) -> str:
    """Return the script that the api serves for one machine; None: no inspection waits for it."""
    if not secret:
        return "#!ipxe\n# No inspection waits for this machine.\n"
    return f"#!ipxe\nset token {callback_secret.agent_token(secret)}\nset secret {secret}\n"


def boot_script(settings: Settings, node: Node, secret: str | None) -> str | None:
    """Return the script that boots a machine into its ramdisk; None if the configuration is incomplete."""
    ramdisk_files = files(settings, node)
    if ramdisk_files is None:
        return None
    inspector = settings.inspector
    url = callback_secret.in_url(ramdisk_files.callback, secret) if secret else ramdisk_files.callback
    extra = with_consoles(" ".join([inspector.extra_kernel_params, *settings.boot.kernel_options]), CONSOLES_VARIABLE)
    token = callback_secret.agent_token(secret) if secret else ""
    parameters = kernel_params(url, extra=extra, collect_lldp=inspector.collect_lldp, agent_token=token)
    return "\n".join(
        [
            "#!ipxe",
            f"# Boots node {node.uuid} for its inspection.",
            SET_CONSOLES,
            f"{set_base_from(settings.boot, SERVER_VARIABLE)} ||",
            f"{set_base_from(settings.boot, PROXY_VARIABLE)} ||",
            f"kernel {IPXE_PATIENCE} --name kernel {ramdisk_files.kernel} {IPXE_ARGUMENTS} {parameters} || exit 1",
            f"initrd {IPXE_PATIENCE} --name ramdisk {ramdisk_files.ramdisk} || exit 1",
            "boot || exit 1",
            "",
        ]
    )


def files(settings: Settings, node: Node) -> RamdiskFiles | None:
    """Return what a node boots by a script of ours: its own files, else those of ``[boot]``; None if one has no URL."""
    kernel = _url(node.driver_info.get("deploy_kernel")) or _file_url(settings.boot, settings.boot.kernel)
    ramdisk = _url(node.driver_info.get("deploy_ramdisk")) or _file_url(settings.boot, settings.boot.ramdisk)
    callback = settings.boot.callback_url
    try:
        callback = callback or callback_url(settings.callback_base)
    except ValueError:
        return None
    return RamdiskFiles(kernel, ramdisk, callback) if kernel and ramdisk else None


def _url(value: object) -> str:
    """Return a node's own URL, "" if iPXE could not load it or would misread it."""
    if not isinstance(value, str) or not value.startswith(("http://", "https://", "tftp://")):
        return ""
    return value if value.isascii() and value.isprintable() and not set(value) & set(" |&#") else ""


def _file_url(settings: BootSettings, file: str) -> str:
    """Return the URL of a file of ``[boot]``, "" if the section has no boot hosts."""
    return file_place(settings, file) if "://" in file or not follows_boot_host(settings) or settings.hosts else ""


def follows_boot_host(settings: BootSettings) -> bool:
    """Whether machines load from the active boot host; otherwise all load from one web server."""
    return not settings.http_url or HOST in settings.http_url


def set_base_from(settings: BootSettings, server: str) -> str:
    """Return the command that loads from the boot host that iPXE got its address or its boot file from."""
    return f"isset {server} && set base {base_of(settings, server)}"


def base_url(settings: BootSettings, host: str) -> str:
    """Return the base URL of the boot files, without a trailing slash; "" if TFTP serves all of them.

    ``host``: replaces ``{host}`` in the URL.
    """
    return settings.http_url.replace(HOST, host).rstrip("/")


def base_of(settings: BootSettings, host: str) -> str:
    return (base_url(settings, host) or f"tftp://{host}") + "/"


def file_place(settings: BootSettings, file: str) -> str:
    """Return the URL of a file; relative ones are below the base URL of the boot files."""
    if "://" in file:
        return file
    return f"${{base}}{file}" if follows_boot_host(settings) else f"{base_of(settings, '')}{file}"


def way(settings: Settings, node: Node, driver: Bmc | None, *, manage_boot: bool) -> Boot:
    """Return how to boot the node; ``BootError`` if its settings contradict each other."""
    return choose(
        node,
        drivers=settings.drivers.enabled,
        manage_boot=manage_boot,
        iso=iso(settings, node),
        boots_itself=isinstance(driver, RamdiskBoot),
        knows_hardware=isinstance(driver, OutOfBand),
        require_managed=bool(settings.inspector.require_managed_boot),
        scripted=bool(settings.boot.machine_script_url) and files(settings, node) is not None,
    )


def iso(settings: Settings, node: Node) -> str:
    """Return the URL of the ramdisk's image, "" for none."""
    own = node.driver_info.get("deploy_iso")
    if isinstance(own, str) and own:
        return own
    configured = settings.inspector.ramdisk_iso
    if not configured.startswith("/"):
        return configured
    # A file that the api's hosts serve themselves. The URL is short, because some BMCs cut off long ones.
    return f"{settings.callback_base.rstrip('/')}/v1/media/{PurePosixPath(configured).name}"


def delivery(settings: Settings, node: Node, driver: Bmc | None) -> Delivery | None:
    """Return how the machine of a requested inspection will get its secret; None if the inspection needs none."""
    if settings.inspector.callback_secret == "off":  # noqa: S105  # a mode, not a password
        return None
    try:
        booted = way(settings, node, driver, manage_boot=True)
    except BootError:  # the worker reports it
        return None
    if booted is Boot.VIRTUAL_MEDIA:
        return Delivery.PLANNED if carries_secret(settings) else Delivery.NONE
    if booted in FROM_NETWORK:
        extra = " ".join([settings.inspector.extra_kernel_params, *settings.boot.kernel_options])
        scripted = settings.boot.machine_script_url and not overrides_callback(extra)
        return Delivery.BOOT_SCRIPT if scripted else Delivery.NONE
    return None


def has_macs(tx: Transaction, node: Node) -> bool:
    """Return whether any MAC address of the node is known: of a port, or from its discovery."""
    return bool(tx.ports.list(Query(filters={"node": node.uuid}, limit=1)) or tx.discoveries.macs(node.uuid))


def carries_secret(settings: Settings) -> bool:
    """Whether the parameter disk for virtual media can contain the callback URL with the secret."""
    try:
        callback_url(settings.callback_base)
    except ValueError:
        return False
    return not overrides_callback(settings.inspector.extra_kernel_params)
