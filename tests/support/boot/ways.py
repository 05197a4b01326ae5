"""The ways in which a machine's firmware boots from the network."""

from __future__ import annotations

from typing import Any

from tests.support.boot.machine import Machine
from tests.support.boot.site import API6, BootSite

# OVMF boots over HTTP where it may not boot by PXE.
NO_PXE = {"IPv4PXESupport": "n", "IPv6PXESupport": "n"}
WAYS = {
    "uefi-pxe": ("uefi", {}, "Start PXE over IPv4"),
    "uefi-http": ("uefi", NO_PXE, "Start HTTP Boot over IPv4"),
    "bios-pxe": ("bios", {}, "SeaBIOS"),
    "uefi-http-ipv6": ("uefi", NO_PXE, "Start HTTP Boot over IPv6"),
    "bios-pxe-relayed": ("bios", {}, "gw 10.80.0.1"),
}
# What the installation is told where the network is not the usual one.
PLANS: dict[str, dict[str, Any]] = {
    "uefi-http-ipv6": {"api": API6, "ranges": ("fd77::1000-fd77::ffff",)},
    "bios-pxe-relayed": {"ranges": ("10.77.0.50-10.77.0.229", "10.80.0.50-10.80.0.109/24@10.80.0.1")},
}


def inspected(site: BootSite, way: str, **hardware: Any) -> Machine:
    """Return a new machine that boots in this way, whose inspection has succeeded."""
    firmware, knobs, said = WAYS[way]
    network = site.add_relayed_network() if way.endswith("relayed") else "br0"
    machine = site.add("vm1", firmware=firmware, knobs=knobs, network=network, **hardware)
    site.inspect(machine)
    state = site.until_done(machine)
    assert state == "manageable", site.told(machine)
    assert said in machine.console.text
    return machine
