"""The ways in which a machine's firmware boots from the network."""

from __future__ import annotations

from typing import Any

from tests.support.boot.machine import Machine
from tests.support.boot.site import BootSite

# OVMF boots over HTTP where it may not boot by PXE.
NO_PXE = {"IPv4PXESupport": "n", "IPv6PXESupport": "n"}
WAYS = {
    "uefi-pxe": ("uefi", {}, "Start PXE over IPv4"),
    "uefi-http": ("uefi", NO_PXE, "Start HTTP Boot over IPv4"),
    "bios-pxe": ("bios", {}, "SeaBIOS"),
}


def inspected(site: BootSite, way: str, **hardware: Any) -> Machine:
    """Return a new machine that boots in this way, whose inspection has succeeded."""
    firmware, knobs, said = WAYS[way]
    machine = site.add("vm1", firmware=firmware, knobs=knobs, **hardware)
    site.inspect(machine)
    state = site.until_done(machine)
    assert state == "manageable", site.told(machine)
    assert said in machine.console.text
    return machine
