"""ironic-python-agent inspects the machine on which this runs: its own hardware manager, its own collectors.

Nothing is made up: whatever programs and devices the machine has for it (lshw, lsblk, dmidecode, /sys) are asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ironic_python_agent import config as _options  # noqa: F401  # first: it declares the options
from ironic_python_agent import hardware, inspector
from oslo_config import cfg

CONF = cfg.CONF


class ThisMachine(hardware.GenericHardwareManager):  # type: ignore[misc]  # the agent has no types
    """The agent's manager for any machine. In a container the NICs have no device, and it would pass them over."""

    def list_network_interfaces(self) -> list[Any]:
        found = super().list_network_interfaces()
        names = sorted(path.name for path in Path("/sys/class/net").iterdir() if path.name != "lo")
        return found or [self.get_interface_info(name) for name in names]


def inspect(urls: dict[str, str], api: str) -> str:
    """Collect and call back, as the agent does when it was booted for that; return the node's UUID."""
    CONF([], project="ironic-python-agent", default_config_files=[])
    CONF.set_override("inspection_callback_url", urls[api] + _PATHS[api])
    CONF.set_override("inspection_collectors", "default,pci-devices")
    CONF.set_override("inspection_dhcp_wait_timeout", 0)
    support = hardware.HardwareSupport.GENERIC
    hardware._global_managers = [{"name": "this-machine", "support": support, "manager": ThisMachine()}]
    return str(inspector.inspect())


_PATHS = {"bare_metal": "/v1/continue_inspection", "introspection": "/v1/continue"}
