"""An installation whose nodes come from Machine objects: service, simulated fleet and controllers as processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import requests

from bench.service import executable
from ferroscope_sim.inventory import pxe_mac
from ferroscope_sim.model import FleetSettings, Member, roster
from tests.support import databases
from tests.support.installation import Installation, Played
from tests.support.processes import PATIENCE, free_port


class MachineSite(Installation):
    """``specs`` are those of the fleet's machines by name; ``url`` is the API of the service."""

    def __init__(
        self, directory: Path, kubeconfig: Path, *, machines: int, controllers: int = 1, options: str = ""
    ) -> None:
        super().__init__(directory)
        self._kubeconfig = kubeconfig
        self._machines = machines
        self._count = controllers
        self._options = options
        self.controllers: list[Played] = []

    @property
    def specs(self) -> dict[str, dict[str, Any]]:
        return {member.name: self._spec(member) for member in roster(FleetSettings(nodes=self._machines))}

    def _spec(self, member: Member) -> dict[str, Any]:
        bmc = {"driver": "sim", "address": self._fleet, "options": {"sim_node": member.name}}
        return {"bmc": bmc, "macs": [pxe_mac(member.number)]}

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the service."""
        found: list[dict[str, Any]] = []
        marker: dict[str, str] = {}
        while True:
            headers = {"X-OpenStack-Ironic-API-Version": "latest"}
            page = requests.get(f"{self.url}/v1/nodes/detail", params=marker, headers=headers, timeout=PATIENCE).json()
            found += page["nodes"]
            if "next" not in page:
                return found
            marker = {"marker": found[-1]["uuid"]}

    def patch(self, node: str, *operations: dict[str, Any]) -> None:
        """Change a node elsewhere."""
        headers = {"X-OpenStack-Ironic-API-Version": "latest"}
        answer = requests.patch(f"{self.url}/v1/nodes/{node}", json=list(operations), headers=headers, timeout=PATIENCE)
        answer.raise_for_status()

    def _start(self) -> None:
        ports = [free_port() for _ in range(4)]
        self.url, self._fleet = f"http://127.0.0.1:{ports[0]}", f"127.0.0.1:{ports[2]}"
        self.configuration = self.directory / "ferroscope.conf"
        self.configuration.write_text(
            f"[database]\nconnection = {databases.sqlite(self.directory)}\n"
            "[drivers]\nenabled = sim,fake-hardware\n"
            f"[api]\nhost = 127.0.0.1\nbare_metal_port = {ports[0]}\nintrospection_port = {ports[1]}\n"
            f"[machines]\nkubeconfig = {self._kubeconfig}\nresync = 10\n{self._options}"
        )
        words = ["--nodes", str(self._machines), "--port", str(ports[2]), "--api", self.url, "--subnet", "0"]
        fleet = self.play("fleet", [executable(), "sim", *words, "--boot-delay", "0.5", "--boot-jitter", "0.2"])
        service = self.play("service", [executable(), "all", "-c", str(self.configuration)])
        service.wait_ready()
        fleet.wait_ready("machines at")
        for number in range(1, self._count + 1):
            command = [executable(), "machines", "-c", str(self.configuration)]
            self.controllers.append(self.play(f"machines-{number}", command))
        for one in self.controllers:
            one.wait_ready()
