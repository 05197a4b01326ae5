"""Drives simulated machines as the service would, over their BMCs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ferroscope_sim.client import FleetClient, MachineStatus
from ferroscope_sim.model import FleetSettings
from ferroscope_sim.outcomes import Effect
from ferroscope_sim.run import FleetThread
from tests.support.processes import PATIENCE

QUICK: dict[str, Any] = {"boot_delay": 0.02, "boot_jitter": 0.01, "time_scale": 0.01}


class Drive:
    """A running fleet, its client, and what a service does to it."""

    def __init__(self, running: FleetThread, client: FleetClient) -> None:
        self.fleet = running
        self.client = client

    def boot(self, name: str) -> None:
        """Boot the ramdisk of a machine."""
        self.client.call("set_boot_device", node=name, device="pxe", persistent=False)
        self.power(name, "power on")

    def power(self, name: str, power: str) -> None:
        self.client.call("set_power", node=name, power=power)

    def machine(self, name: str) -> MachineStatus:
        return self.client.status([name], log=True).nodes[name]

    def until(self, effect: Effect, at_least: int = 1) -> None:
        """Wait until the fleet's total is reached."""
        assert self.client.wait_for(effect, at_least, timeout=PATIENCE), self.client.status(nodes=False)


@contextmanager
def driving(*special: str, **settings: Any) -> Iterator[Drive]:
    """Run a quick fleet of the machines named."""
    told = FleetSettings(**{"nodes": 0, "special": special, **QUICK, **settings})
    with FleetThread(told) as running, FleetClient(running.address) as client:
        yield Drive(running, client)
