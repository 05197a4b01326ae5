"""The BMC driver for Redfish, based on sushy: one file for each subject of Redfish.

``driver`` imports little, because the api validates ``driver_info`` with it. The other modules import sushy, so they
are imported with their first use as an attribute of this package, in the first call to a BMC.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason

if TYPE_CHECKING:
    from ferroscope.bmc.redfish import failures, health, inventory, report, session, system, virtual_media

__all__ = ("failures", "health", "inventory", "report", "session", "system", "virtual_media")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(name)
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as exc:
            message = f"the Python package {exc.name}, which the redfish driver needs, is not installed on this worker"
            raise BmcError(message, transient=False, reason=Reason.DRIVER_INCOMPLETE) from None
