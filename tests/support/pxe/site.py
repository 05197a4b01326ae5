"""The whole product on the lab: api, worker, a database, boot hosts with filter and dnsmasq, machines with BMCs.

The api and the worker run beside the namespaces, on 127.0.0.1; filters reach the database through the management
network, machines the api through the boot network. Everything dies with the test.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.service import executable, upgrade
from ferroscope_client.client import Client, Json, node_path
from ferroscope_client.errors import Exit, Failure
from tests.support.installation import Installation, Played
from tests.support.processes import PATIENCE, free_port, until
from tests.support.pxe import ramdisk
from tests.support.pxe.bmc import Bmcs, Powered
from tests.support.pxe.host import BootHost, boot_settings
from tests.support.pxe.lab import Lab
from tests.support.pxe.prober import Prober

NETWORK: Final = "lab"

_SERVICE: Final = """\
[api]
host = 127.0.0.1
bare_metal_port = {port}
introspection_port = 0
[database]
connection = {connection}
[worker]
threads = 4
[drivers]
{drivers}
[pxe_filter]
network = {network}
interfaces = boot
{options}
"""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """``options``: more of the configuration, of all processes. ``program`` of a host is run as its ``ferroscope``.

    ``boot``: changes to the section ``[boot]`` of the boot hosts. ``drivers``: the section ``[drivers]``.
    """

    hosts: int = 3
    options: str = ""
    drivers: str = "enabled = sim,fake-hardware"
    boot: dict[str, Any] = {}
    program: Callable[[BootHost], Sequence[str]] = lambda _: [executable()]


class Site(Installation):
    """``with Site(directory, url, plan) as site``: all processes run; no machine is there yet."""

    def __init__(self, directory: Path, url: str, plan: Plan = Plan()) -> None:  # noqa: B008  # it is frozen
        super().__init__(directory)
        self.plan = plan
        self.machines: dict[str, Powered] = {}
        self.port = free_port()
        self.api = Client(f"http://127.0.0.1:{self.port}")
        self.processes: list[Played] = []
        self._url = url

    @property
    def hosts(self) -> list[BootHost]:
        return self.lab.hosts

    def config(self, name: str, connection: str) -> Path:
        """Write a configuration file for one process and return it."""
        path = self.directory / f"{name}.conf"
        path.write_text(
            _SERVICE.format(
                port=self.port,
                connection=connection,
                network=NETWORK,
                drivers=self.plan.drivers,
                options=self.plan.options,
            )
        )
        return path

    def open_host(self, prober: Prober, mac: str, *, seconds: float = PATIENCE) -> BootHost:
        """Return the boot host that answers ``mac``, which the prober asks for; an error where none does, in time."""
        answer = prober.wait(mac, seconds=seconds)
        if answer is None:
            raise RuntimeError(f"nobody answers {mac}: " + "; ".join(host.last_words() for host in self.hosts))
        return next(host for host in self.hosts if host.address == answer.server)

    def start_pxe_filter(self, host: BootHost) -> Played:
        """Start a boot host's filter."""
        return host.start_pxe_filter(self.config(host.name, self._seen), program=self.plan.program(host))

    def install_ramdisk(self) -> None:
        """Put kernel and ramdisk onto all boot hosts, and the script that boots them."""
        built = self.directory / "initramfs"
        ramdisk.build(built, self.directory / "tree")
        for host in self.hosts:
            (host.tftp / "vmlinuz").symlink_to(ramdisk.kernel())
            (host.tftp / "initramfs").symlink_to(built)

    def enroll(self, name: str, *macs: str, manage: bool = True) -> str:
        """Make a node with these ports, whose BMC switches the machine of this name; return its UUID."""
        driver_info = {"sim_address": self.bmcs, "sim_node": name}
        body = {"name": name, "driver": "sim" if name in self.machines else "fake-hardware", "driver_info": driver_info}
        uuid: str = self.api.call("POST", "/v1/nodes", body)["uuid"]
        for mac in macs:
            self.api.call("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})
        if manage:
            self.provision(name, "manage")
            self.until_state(name, "manageable")
        return uuid

    def call_back(self, *macs: str) -> None:
        """Post what a ramdisk on a machine with these NICs would; the first one booted."""
        nics = [
            {"name": f"eth{number}", "mac_address": mac, "ipv4_address": None, "has_carrier": True}
            for number, mac in enumerate(macs)
        ]
        inventory = {
            "interfaces": nics,
            "cpu": {"model_name": "played", "count": 1, "architecture": "x86_64", "flags": []},
            "memory": {"total": 1 << 30, "physical_mb": 1024},
            "disks": [],
            "bmc_address": None,
            "boot": {"current_boot_mode": "bios", "pxe_interface": macs[0]},
        }
        self.api.call("POST", "/v1/continue_inspection", {"inventory": inventory})

    def provision(self, name: str, target: str) -> None:
        """Ask for a provision state."""
        self.api.put(node_path(name, "states", "provision"), {"target": target})

    def state(self, name: str) -> str:
        """Return a node's provision state."""
        return str(self.node(name)["provision_state"])

    def node(self, name: str) -> Json:
        return self.api.get(node_path(name))

    def until_state(self, name: str, *states: str, seconds: float = PATIENCE) -> str:
        """Return when the node is in one of the states; an error when it is not, in time."""
        if not until(lambda: self.state(name) in states, seconds=seconds):
            node = self.node(name)
            raise RuntimeError(f"{name} is {node['provision_state']}, not {states}: {node['last_error']}")
        return self.state(name)

    def inventory(self, name: str) -> Json:
        """Return what is known of the node's hardware."""
        return self.api.get(node_path(name, "inventory"))["inventory"]

    def ports(self, name: str) -> dict[str, Json]:
        """Return the node's ports by MAC."""
        return {port["address"]: port for port in self.api.pages("/v1/ports", "ports", node=name, detail=True)}

    def timeline(self, name: str) -> list[Json]:
        """Return the steps of the newest inspection."""
        steps: list[Json] = self.api.get(node_path(name, "timeline"), limit=1)["inspections"][0]["entries"]
        return steps

    def _start(self) -> None:
        self.lab = self._ending.enter_context(Lab(self.directory, hosts=self.plan.hosts))
        self.bmcs = self._ending.enter_context(Bmcs(self.machines))
        self._seen = self.lab.reach(url=self._url, api=f"127.0.0.1:{self.port}")
        config = self.config("service", self._url)
        for role in ("api", "worker"):
            self.processes.append(self.play(role, [*self._prefix(role), executable(), role, "-c", str(config)]))
        closed = subprocess.run([executable(), "pxe", "ruleset", "-c", str(config)], stdout=subprocess.PIPE, check=True)
        for host in self.hosts:
            host.boot_closed(closed.stdout)
            host.configure(boot_settings(self.plan.hosts, **self.plan.boot))
            host.start_dnsmasq()
            self.start_pxe_filter(host)
        for played in self.processes:
            played.wait_ready()
        if not until(self._answers):
            raise RuntimeError(f"the api does not answer: {self.processes[0].output()[-2000:]}")
        # Before there is an open filter, power-ons wait for none.
        if not until(self._open):
            raise RuntimeError("no filter opens: " + "; ".join(host.last_words() for host in self.hosts))

    def _prefix(self, role: str) -> Sequence[str]:
        """Return the command that runs a role of the service elsewhere than on this host."""
        return ()

    def _open(self) -> bool:
        return any(pxe_filter["open"] for pxe_filter in self.api.get("/v1/status")["pxe_filters"])

    def _answers(self) -> bool:
        try:
            self.api.get("/v1/")
        except Failure as exc:
            if exc.exit_code != Exit.UNREACHABLE:
                raise
            return False
        return True


def upgraded(directory: Path, url: str) -> str:
    """Bring a database's schema to the newest version, with the command; return its URL."""
    file = directory / "upgrade.conf"
    file.write_text(f"[database]\nconnection = {url}\n")
    upgrade(file)
    return url
