"""What ironic-python-agent does on a machine, its own code; run by ``runner``.

The machine's hardware is made up, of the agent's own types, and put where the agent keeps what it has
collected; everything after that, from the encoding to the HTTP calls and their retries, is the agent's.
"""

from __future__ import annotations

from typing import Any

from ironic_python_agent import agent, errors, hardware, inspector, ironic_api_client, utils
from ironic_python_agent import config as _options  # noqa: F401  # first: it declares the options
from oslo_config import cfg

CONF = cfg.CONF


def inspect(urls: dict[str, str], api: str, macs: list[str], secret: str | None = None) -> str:
    """Inspect the machine as the agent does when it has been booted for that; return the node's UUID."""
    _configure(urls, api, secret)
    hardware._CACHED_HW_INFO = collected(macs)
    hardware._global_managers = [{"name": "made-up", "support": 1, "manager": MadeUp()}]
    return str(inspector.inspect())


def call_back(urls: dict[str, str], api: str, bodies: list[list[str]], error: str | None = None) -> list[Any]:
    """Post one callback after the other, each of a machine with these MACs; return the answers."""
    _configure(urls, api)
    answers = []
    for macs in bodies:
        failures = utils.AccumulatedFailures(exc_class=errors.InspectionError)
        if error is not None:
            failures.add(error)
        answers.append(inspector.call_inspector({"inventory": collected(macs)}, failures))
    return answers


def look_up(urls: dict[str, str], macs: list[str], node: str | None = None) -> dict[str, Any]:
    """Look the machine up as the agent does when it starts."""
    _configure(urls, "bare_metal")
    client = ironic_api_client.APIClient(urls["bare_metal"])
    found: dict[str, Any] = client.lookup_node(collected(macs), timeout=0, starting_interval=1, node_uuid=node)
    return found


def keep(urls: dict[str, str], macs: list[str], token: str) -> str:
    """Start the agent with the token that the kernel's command line has, and look it up; return the token it uses."""
    _configure(urls, "bare_metal")
    CONF.set_override("agent_token", token)
    started = agent.IronicPythonAgent.from_config(CONF)
    started.process_lookup_data(started.api_client.lookup_node(collected(macs), timeout=0, starting_interval=1))
    started.api_client.heartbeat(started.node["uuid"], ("192.0.2.7", 9999))
    return str(started.api_client.agent_token)


def heartbeat(urls: dict[str, str], node: str, token: str) -> None:
    """Send one heartbeat."""
    _configure(urls, "bare_metal")
    client = ironic_api_client.APIClient(urls["bare_metal"])
    client.agent_token = token
    client.heartbeat(node, ("192.0.2.7", 9999))


class MadeUp(hardware.HardwareManager):
    """A hardware manager for a machine that does not exist."""

    HARDWARE_MANAGER_NAME = "made-up"
    HARDWARE_MANAGER_VERSION = "1"

    def evaluate_hardware_support(self) -> int:
        return int(hardware.HardwareSupport.GENERIC)


def collected(macs: list[str]) -> dict[str, Any]:
    """Return an inventory of the agent's own types; the first NIC is the one that booted."""
    return {
        "interfaces": [
            hardware.NetworkInterface(f"eth{number}", mac, ipv4_address=f"192.0.2.{number + 1}", speed_mbps=10_000)
            for number, mac in enumerate(macs)
        ],
        "cpu": hardware.CPU("Made-up CPU", "2400.0", 16, "x86_64", ["vmx", "aes"], socket_count=1),
        "disks": [hardware.BlockDevice("/dev/sda", "made-up", 240_057_409_536, False, serial="S1", vendor="ACME")],
        "memory": hardware.Memory(68_719_476_736, physical_mb=65_536),
        "bmc_address": None,
        "bmc_v6address": None,
        "system_vendor": hardware.SystemVendorInfo("made-up", "42", "ACME", hardware.SystemFirmware("ACME", "1", "")),
        "boot": hardware.BootInfo("uefi", pxe_interface=f"01-{macs[0].replace(':', '-')}"),
        "hostname": "ramdisk",
    }


def _configure(urls: dict[str, str], api: str, secret: str | None = None) -> None:
    """Set what the kernel's command line would say; ``api`` is the API that is called back."""
    CONF([], project="ironic-python-agent", default_config_files=[])
    path = "/v1/continue_inspection" if api == "bare_metal" else "/v1/continue"
    query = f"?secret={secret}" if secret else ""
    CONF.set_override("inspection_callback_url", urls[api] + path + query)
    CONF.set_override("api_url", urls["bare_metal"])
    CONF.set_override("inspection_collectors", "default")
    CONF.set_override("inspection_dhcp_wait_timeout", 0)
