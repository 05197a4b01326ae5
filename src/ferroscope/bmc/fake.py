"""A BMC driver without a BMC: every command succeeds at once, and the stored node is the truth.

Used for the drivers ``fake`` and ``fake-hardware``. The power state is that of the stored node, so the caller of
``set_power`` has to store it there. The boot device is kept in this process only. There are no delays and no failures:
see the simulator for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ferroscope.bmc import DriverOptions
from ferroscope.contracts.bmc import BootDevice, Power, Switch
from ferroscope.core.interfaces import KINDS, NOOP, UEFI_HTTP
from ferroscope.core.model import Document, Node


class FakeBmc:
    """Thread-safe: each call reads or replaces one value. Never raises ``BmcError``."""

    properties: Mapping[str, str] = {"bmc_address": "The address of the BMC, for information only."}
    simulated = True
    interfaces: Mapping[str, Sequence[str]] = {
        kind: ("fake",) for kind in KINDS if kind not in ("inspect", "network", "storage")
    }
    # Ironic lets fake hardware have the interfaces of all hardware types.
    stored_interfaces: Mapping[str, Sequence[str]] = {
        "bios": ("redfish", "idrac-redfish"),
        "boot": (UEFI_HTTP, "redfish-virtual-media", "idrac-redfish-virtual-media"),
        "console": ("redfish-graphical", "ipmitool-socat"),
        "firmware": ("redfish",),
        "management": (NOOP, "redfish", "idrac-redfish", "ipmitool"),
        "power": ("redfish", "idrac-redfish", "ipmitool"),
        "raid": ("redfish", "idrac-redfish"),
        "storage": ("fake",),
        "vendor": ("redfish", "idrac-redfish", "ipmitool"),
    }
    boot_devices: Sequence[BootDevice] = tuple(BootDevice)
    default_boot_device: BootDevice | None = BootDevice.PXE

    def __init__(self, _options: DriverOptions | None = None) -> None:
        self._devices: dict[str, tuple[BootDevice, bool]] = {}

    def validate(self, node: Node) -> str | None:
        return None

    def driver_info(self, address: str) -> Document:
        return {"bmc_address": address}

    def get_power(self, node: Node) -> Power:
        """Return the stored power state; unknown until the first command."""
        return Power.of(node.power_state)

    def set_power(self, node: Node, power: Switch) -> None:
        """Succeed; the caller stores the resulting state on the node."""

    def reboot(self, node: Node) -> None:
        """Succeed."""

    def soft_power_off(self, node: Node) -> None:
        """Succeed; the caller stores the resulting state on the node."""

    def soft_reboot(self, node: Node) -> None:
        """Succeed."""

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        """Remember ``device`` for as long as this process lives."""
        self._devices[node.uuid] = (device, persistent)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        """Return the device that was set in this process, or the default one."""
        return self._devices.get(node.uuid, (self.default_boot_device, False))

    def clear_boot_device(self, node: Node, device: BootDevice) -> bool:
        was_set = self._devices.get(node.uuid) == (device, False)
        if was_set:
            del self._devices[node.uuid]
        return was_set
