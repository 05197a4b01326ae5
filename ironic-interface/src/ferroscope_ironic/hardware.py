"""Hardware types whose inspect interface may be Ferroscope: Ironic's own ones accept only interfaces that they know.

Nothing else differs, so a node is moved by changing its driver. ``fake-hardware`` accepts any interface as it is.
"""

from ironic.drivers import ipmi, redfish
from oslo_config import cfg

from ferroscope_ironic.inspect import FerroscopeInspect

CONF = cfg.CONF

# Ironic's code for Redfish reads this option from the section that is named like the hardware type.
_VERIFY_CA = cfg.StrOpt(
    "verify_ca",
    default=CONF.redfish.verify_ca,
    help="What verifies the certificates of BMCs whose nodes have no redfish_verify_ca; by default as in [redfish].",
)
CONF.register_opt(_VERIFY_CA, group="ferroscope-redfish")


class FerroscopeRedfishHardware(redfish.RedfishHardware):
    """``redfish``, and Ferroscope as an inspect interface."""

    @property
    def supported_inspect_interfaces(self):
        return [FerroscopeInspect, *super().supported_inspect_interfaces]


class FerroscopeIPMIHardware(ipmi.IPMIHardware):
    """``ipmi``, and Ferroscope as an inspect interface."""

    @property
    def supported_inspect_interfaces(self):
        return [FerroscopeInspect, *super().supported_inspect_interfaces]
