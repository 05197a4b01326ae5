"""The BMC driver for Redfish, based on sushy: one file for each subject of Redfish.

``driver`` imports little, because the api validates ``driver_info`` with it. The other modules import sushy, so they
are imported with their first use as an attribute of this package, in the first call to a BMC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ferroscope.contracts.errors import BmcError
from ferroscope.core.reasons import Reason

if TYPE_CHECKING:
    from ferroscope.bmc.redfish import boot as boot
    from ferroscope.bmc.redfish import failures as failures
    from ferroscope.bmc.redfish import health as health
    from ferroscope.bmc.redfish import inventory as inventory
    from ferroscope.bmc.redfish import report as report
    from ferroscope.bmc.redfish import session as session
    from ferroscope.bmc.redfish import system as system
    from ferroscope.bmc.redfish import virtual_media as virtual_media
else:
    _SUBJECTS = ("boot", "failures", "health", "inventory", "report", "session", "system", "virtual_media")

    def __getattr__(name: str) -> object:
        if name not in _SUBJECTS:
            raise AttributeError(name)
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as exc:
            message = f"the Python package {exc.name}, which the redfish driver needs, is not installed on this worker"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
