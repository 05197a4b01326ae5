"""The boot device of a node: queue the command, and answer from what was asked for last.

The api never speaks to a BMC, so the stored wish is the answer. Source: the Bare Metal API
reference.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope import transition
from ferroscope.api.call import Call, NoQuery, Reply
from ferroscope.api.context import ApiContext
from ferroscope.api.documented import Device
from ferroscope.api.errors import BadRequestError
from ferroscope.api.idents import node_ident
from ferroscope.api.scalars import boolean, shown
from ferroscope.contracts.bmc import BootDevice
from ferroscope.contracts.store import Transaction
from ferroscope.core.states import Event

_DEVICES: Final = [str(device) for device in BootDevice]


class BootDeviceTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """PUT management/boot_device."""

    boot_device: Device
    persistent: bool | str | None = None


class BootDeviceView(msgspec.Struct, frozen=True):
    """None where nothing was ever asked for."""

    boot_device: str | None
    persistent: bool | None


class SupportedBootDevices(msgspec.Struct, frozen=True):
    """GET management/boot_device/supported."""

    supported_boot_devices: list[str]


def set_boot_device(context: ApiContext, call: Call[NoQuery, BootDeviceTarget]) -> Reply:
    """Ask the machine to boot from a device, the next time or always."""
    device = call.body.boot_device
    if device not in _DEVICES:
        raise BadRequestError(f"The boot device {shown(device)} is not known; known: {', '.join(_DEVICES)}.")
    persistent = boolean("persistent", call.body.persistent or False)
    ident = node_ident(call)

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(ident, lock=True)
        wish = {"boot_device": device, "persistent": persistent}
        transition.submit(tx, node, Event.SET_BOOT_DEVICE, process=context.process, payload=wish)
        tx.nodes.update(msgspec.structs.replace(node, internal=node.internal | {"boot_device": wish}))

    context.store.write(work)
    return Reply(204)


def get_boot_device(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """Show the boot device that was asked for last."""
    ident = node_ident(call)
    node = context.store.read(lambda tx: tx.nodes.get(ident))
    wish = node.internal.get("boot_device") or {}
    return Reply(200, BootDeviceView(boot_device=wish.get("boot_device"), persistent=wish.get("persistent")))


def get_supported_boot_devices(context: ApiContext, call: Call[NoQuery, None]) -> Reply:
    """List the boot devices that may be asked for."""
    ident = node_ident(call)
    context.store.read(lambda tx: tx.nodes.get(ident))
    return Reply(200, SupportedBootDevices(supported_boot_devices=_DEVICES))
