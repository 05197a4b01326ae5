"""Power and boot device of the nodes of an attached Ironic: its own drivers do the work.

Used for all nodes, whatever their driver there, if ``[registry] backend`` is ``ironic``. Ironic locks a node while it
works on it; requests wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferroscope.bmc.drivers import DriverOptions
from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.remote import Registry
from ferroscope.core.model import Node
from ferroscope.core.reasons import Reason
from ferroscope.remote.ironic import as_bmc_errors

_DEVICES: Final = frozenset(BootDevice)


class IronicBmc:
    """The BMCs are Ironic's business: ``driver_info`` is not read here."""

    properties: Mapping[str, str] = {}

    def __init__(self, options: DriverOptions) -> None:
        if options.registry is None:
            raise ValueError("the driver ironic belongs to [registry] backend = ironic")
        self._registry: Registry = options.registry

    def validate(self, node: Node) -> str | None:
        return None

    def get_power(self, node: Node) -> Power:
        """Return the state that Ironic has observed; a machine that it has not asked yet counts as on."""
        with as_bmc_errors():
            state, error = self._registry.power(node.uuid)
        if state == "error":
            raise BmcError(f"Ironic cannot control the power: {error}", transient=True, reason=Reason.POWER_FAILED)
        return Power.OFF if state == Power.OFF else Power.ON

    def set_power(self, node: Node, power: Power) -> None:
        with as_bmc_errors():
            self._registry.set_power(node.uuid, str(power))

    def reboot(self, node: Node) -> None:
        with as_bmc_errors():
            self._registry.set_power(node.uuid, "rebooting")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        with as_bmc_errors():
            self._registry.set_boot_device(node.uuid, str(device), persistent=persistent)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        with as_bmc_errors():
            device, persistent = self._registry.boot_device(node.uuid)
        return (BootDevice(device), persistent) if device in _DEVICES else (None, None)
