"""What is checked of a machine that was inspected, whatever way it booted."""

from __future__ import annotations

from tests.support.boot.machine import Machine
from tests.support.boot.site import BootSite


def check_end(site: BootSite, machine: Machine, *, proof: str = "verified") -> None:
    """It has proven itself, booted once, and is off; the node has what follows."""
    node, steps = site.node(machine.name), site.steps(machine)
    assert node["last_error"] is None
    assert node["power_state"] == "power off"
    assert not site.hypervisor.is_on(machine.name)
    assert node["properties"]["memory_mb"] == machine.memory
    assert node["properties"]["cpu_arch"] == "x86_64"
    assert steps["callback"]["detail"]["proof"] == proof
    assert list(steps)[-1] == "finished"
