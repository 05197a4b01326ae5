"""Power and boot device of the nodes of an attached Ironic: its own drivers do the work.

Used for all nodes if ``[registry] backend`` is ``ironic``, regardless of their driver there. Ironic locks a node while
it works on it; requests wait for that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ferroscope.bmc import DriverOptions
from ferroscope.contracts.bmc import BootDevice, Power, Switch
from ferroscope.contracts.errors import BmcError
from ferroscope.contrib.openstack.client import as_bmc_errors
from ferroscope.core import ironic_nodes
from ferroscope.core.model import Node
from ferroscope_client.core.reasons import Reason

_DEVICES: Final = frozenset(BootDevice)


class IronicBmc:
    """The BMCs are Ironic's business: ``driver_info`` is not read here."""

    properties: Mapping[str, str] = {}

    def __init__(self, options: DriverOptions) -> None:
        if options.ironic is None:
            raise ValueError("the driver ironic belongs to [registry] backend = ironic")
        self._ironic = options.ironic

    def validate(self, node: Node) -> str | None:
        return None

    def get_power(self, node: Node) -> Power:
        """Return the state that Ironic has observed; unknown if it has not asked yet, changing while it commands one.

        ``BmcError`` if the node is in use meanwhile: an inspection that others have overtaken must not power it off.
        """
        with as_bmc_errors():
            observed = self._ironic.power(node.uuid)
        provision = str(observed.get("provision_state"))
        if ironic_nodes.is_in_use(provision):
            message = f"the node is {provision} in Ironic, so its power is left alone"
            raise BmcError(message, transient=False, reason=Reason.REGISTRY_REFUSED)
        state = observed.get("power_state")
        if state == "error":
            message = f"Ironic cannot control the power: {observed.get('last_error')}"
            raise BmcError(message, transient=True, reason=Reason.POWER_FAILED)
        return Power.CHANGING if observed.get("target_power_state") else Power.of(state)

    def set_power(self, node: Node, power: Switch) -> None:
        with as_bmc_errors():
            self._ironic.set_power(node.uuid, str(power))

    def reboot(self, node: Node) -> None:
        self.get_power(node)  # refuses if the node is in use: not every reboot follows a check
        with as_bmc_errors():
            self._ironic.set_power(node.uuid, "rebooting")

    def set_boot_device(self, node: Node, device: BootDevice, *, persistent: bool) -> None:
        with as_bmc_errors():
            self._ironic.set_boot_device(node.uuid, str(device), persistent=persistent)

    def get_boot_device(self, node: Node) -> tuple[BootDevice | None, bool | None]:
        with as_bmc_errors():
            device, persistent = self._ironic.boot_device(node.uuid)
        return (BootDevice(device), persistent) if device in _DEVICES else (None, None)
