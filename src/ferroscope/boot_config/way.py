"""How an inspection boots its machine, and how the machine gets the inspection's secret: from settings and driver.

The api asks when the inspection is requested, the worker when it starts the machine.
"""

from __future__ import annotations

from ferroscope.config.options import Settings
from ferroscope.contracts.bmc import Bmc, OutOfBand, RamdiskBoot
from ferroscope.contracts.store import Query, Transaction
from ferroscope.core.boot import Boot, BootError, callback_url, choose, overrides_callback
from ferroscope.core.callback_secret import Delivery
from ferroscope.core.model import Node


def way(settings: Settings, node: Node, driver: Bmc | None, *, manage_boot: bool) -> Boot:
    """Return how to boot the node; ``BootError`` if its settings contradict each other."""
    return choose(
        node,
        drivers=settings.drivers.enabled,
        manage_boot=manage_boot,
        iso=iso(settings, node),
        boots_itself=isinstance(driver, RamdiskBoot),
        knows_hardware=isinstance(driver, OutOfBand),
        require_managed=settings.inspector.require_managed_boot,
    )


def iso(settings: Settings, node: Node) -> str:
    """Return the URL of the ramdisk's image, "" for none."""
    own = node.driver_info.get("deploy_iso")
    return own if isinstance(own, str) and own else settings.inspector.ramdisk_iso


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
    if booted is Boot.NETWORK:
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
