"""The boot device of a node: PUT queues the command. GET returns the last requested device, else the reported one.

The api never connects to a BMC. Source: the Bare Metal API reference.
"""

from __future__ import annotations

import msgspec

from ferroscope import transition
from ferroscope.api.errors import BadRequestError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.decoding import boolean, node_ident
from ferroscope.api.http.route import NoQuery, Reply, RouteCall
from ferroscope.api.http.schemas import Device
from ferroscope.contracts.bmc import (
    Bmc,
    BootDevice,
    BootDevices,
)
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.db import Transaction


class BootDeviceTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT management/boot_device."""

    boot_device: Device
    persistent: bool | str | None = None


class BootDeviceView(msgspec.Struct, frozen=True):
    """The boot device; None if it is unknown."""

    boot_device: str | None
    persistent: bool | None


class SupportedBootDevices(msgspec.Struct, frozen=True):
    """GET management/boot_device/supported."""

    supported_boot_devices: list[str]


def set_boot_device(context: ApiContext, call: RouteCall[NoQuery, BootDeviceTarget]) -> Reply:
    """Set the boot device, for the next boot or persistently."""
    device = call.body.boot_device
    persistent = boolean("persistent", call.body.persistent or False)
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        supported = _boot_devices(context.services.drivers.get(node.driver))
        if device not in supported:
            raise BadRequestError(f"Invalid boot device {device[:80]} specified. Supported: {', '.join(supported)}.")
        target = {"boot_device": device, "persistent": persistent}
        transition.submit(tx, node, Event.SET_BOOT_DEVICE, process=context.process.name, payload=target)
        tx.nodes.update(msgspec.structs.replace(node, internal=node.internal | {"boot_device": target}))

    context.data.store.write(work)
    return Reply(204)


def get_boot_device(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """Show the boot device: the last requested one, else what the driver says."""
    node = _get(context, call)
    driver = context.services.drivers.get(node.driver)
    default = driver.default_boot_device if isinstance(driver, BootDevices) else None
    device = node.internal.get("boot_device") or node.internal.get("reported_boot_device")
    if device is None:
        device = {"boot_device": default, "persistent": None if default is None else False}
    return Reply(200, BootDeviceView(boot_device=device.get("boot_device"), persistent=device.get("persistent")))


def get_supported_boot_devices(context: ApiContext, call: RouteCall[NoQuery, None]) -> Reply:
    """List the boot devices that the node's driver supports."""
    node = _get(context, call)
    return Reply(
        200, SupportedBootDevices(supported_boot_devices=_boot_devices(context.services.drivers.get(node.driver)))
    )


def _boot_devices(driver: Bmc | None) -> list[str]:
    return [str(device) for device in (driver.boot_devices if isinstance(driver, BootDevices) else BootDevice)]


def _get(context: ApiContext, call: RouteCall[NoQuery, None]) -> Node:
    ident = node_ident(call)
    return context.data.store.read(lambda tx: tx.nodes.get(ident), snapshot=False)
