"""The whole product before machines that really boot: boot hosts that serve our ramdisk, BMCs, a switch with LLDP.

It is the site of ``tests.support.pxe``, with Redfish instead of simulated BMCs, over HTTP. The worker is in the network
of the BMCs, so that both see the same image at its URL.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from sqlalchemy import NullPool, create_engine, make_url, text

from ferroscope_client.client import Json
from tests.support.boot import acceleration, switch
from tests.support.boot.bmc import Bmc
from tests.support.boot.console import Console
from tests.support.boot.hypervisor import Hypervisor
from tests.support.boot.machine import Machine
from tests.support.boot.management import management
from tests.support.processes import until
from tests.support.pxe.host import BootHost
from tests.support.pxe.lab import SWITCH, SWITCH6
from tests.support.pxe.machine import need_tun
from tests.support.pxe.netns import bridge
from tests.support.pxe.site import Plan, Site

API: Final = f"http://{SWITCH}:6385"
API6: Final = f"http://[{SWITCH6}]:6385"
# Of the management controllers, with the number of the machine.
_MANAGEMENT: Final = "10.77.0.3"
IMAGES: Final = f"http://{SWITCH}:8081"
_LOADERS: Final = ("/usr/lib/ipxe/ipxe.efi", "/usr/lib/ipxe/undionly.kpxe")
_DRIVERS: Final = "enabled = redfish,fake-hardware\nallow_http_passwords = true\nbmc_networks = 10.77.0.0/24"
# Seconds between two looks at a machine that boots for minutes: each look takes from its processor.
_LOOK: Final = 0.5
_LOSSY: Final = """\
table netdev lossy-{tap} {{
    chain in {{
        type filter hook ingress device "{tap}" priority 0
        numgen random mod {lost} 0 drop
    }}
    chain out {{
        type filter hook egress device "{tap}" priority 0
        numgen random mod {lost} 0 drop
    }}
}}
"""
_OPTIONS: Final = """\
http_ports = 8080
relayed_networks = 10.80.0.0/24
[inspector]
timeout = 14400
timeout_period = 5
hooks = $default_hooks,memory,cpus,boot-mode,root-device,parse-lldp,local-link-connection
callback_endpoint_override = {api}
extra_kernel_params = console=ttyS0 {kernel}
{inspector}
[boot]
machine_script_url = {api}/v1/boot.ipxe
[log]
access = true
{more}
"""


def plan(*, hosts: int = 1, api: str = API, inspector: str = "", kernel: str = "", more: str = "", **boot: Any) -> Plan:
    """Return the installation: ``inspector`` and ``more`` are lines of the configuration, ``kernel`` parameters."""
    return Plan(
        hosts=hosts,
        drivers=_DRIVERS,
        options=_OPTIONS.format(api=api, inspector=inspector, kernel=kernel, more=more),
        boot={
            "callback_url": f"{api}/v1/continue_inspection",
            "machine_script_url": f"{api}/v1/boot.ipxe",
            "http_url": "http://{host}:8080/",
            "kernel": "ipa.kernel",
            "ramdisk": "ipa.initramfs",
            "kernel_options": ("console=ttyS0", *kernel.split()),
            **boot,
        },
    )


class BootSite(Site):
    """``with BootSite(directory, url, ramdisk, plan()) as site``; ``ramdisk`` is the directory with our ramdisk."""

    def __init__(self, directory: Path, url: str, ramdisk: Path, plan: Plan) -> None:
        super().__init__(directory, url, plan)
        self.ramdisk = ramdisk
        self._machines = 0

    def add(self, name: str, *, announced: bool = True, network: str = "br0", **kind: Any) -> Machine:
        """Make a machine, switched off, and enroll it by its BMC and its first NIC; ``kind``: fields of ``Machine``."""
        self._machines += 1
        console = Console(self.directory / f"{name}.console.log")
        number = self._machines
        address = f"{_MANAGEMENT}{number}"
        self.lab.wire.ip("address", "add", f"{address}/24", "dev", "br0")
        inside = management(self, self.lab.wire, name, address, f"52:54:00:b0:bb:{number:02x}")
        machine = Machine(
            name=name, number=number, directory=self.directory, console=console, management=inside, **kind
        )
        need_tun()
        for tap, switched in zip(machine.taps, (network, "lonely"), strict=True):
            self.lab.wire.ip("tuntap", "add", tap, "mode", "tap")
            self.lab.wire.ip("link", "set", tap, "up", "master", switched)
        if announced:
            switch.announce(self, self.lab.wire, machine.taps)
        self.hypervisor.define(machine.xml())
        info = self.bmc.driver_info(machine.uuid)
        body = {"name": name, "driver": "redfish", "driver_info": info}
        uuid: str = self.api.call("POST", "/v1/nodes", body)["uuid"]
        self.api.call("POST", "/v1/ports", {"node_uuid": uuid, "address": machine.mac})
        self.provision(name, "manage")
        self.until_state(name, "manageable")
        return machine

    def add_relayed_network(self) -> str:
        """Add a network whose router relays DHCP to the first boot host; return its name, for ``add``."""
        wire = self.lab.wire
        bridge(wire, "far")
        self.lab.relay(self.hosts[0], wire, "to-far")
        wire.ip("link", "set", "to-far", "master", "far")
        wire.ip("route", "add", "10.80.0.0/24", "via", "10.77.0.5")
        return "far"

    def inspect(self, machine: Machine) -> None:
        """Begin its inspection; return when the machine is on."""
        self.provision(machine.name, "inspect")
        self.until(machine, lambda: self.hypervisor.is_on(machine.name) or self.is_done(machine), "it is on")
        machine.console.begin()

    def is_done(self, machine: Machine) -> bool:
        """Tell whether its inspection has ended."""
        return self.state(machine.name) in ("manageable", "inspect failed")

    def until_done(self, machine: Machine) -> str:
        """Wait for the end of its inspection; return the provision state then."""
        self.until(machine, lambda: self.is_done(machine), "its inspection has ended")
        machine.console.note("done")
        print(f"\n{machine.name}, seconds after power-on: {machine.console.times()}")
        return self.state(machine.name)

    def until_step(self, machine: Machine, step: str) -> Json:
        """Wait for a step in the timeline of its inspection; return it."""
        self.until(machine, lambda: step in self.steps(machine), f"there is the step {step}")
        return self.steps(machine)[step]

    def until_printed(self, machine: Machine, word: str) -> None:
        """Wait for a word on its console."""
        self.until(machine, lambda: word in machine.console.text, f"it says {word!r}")

    def until(self, machine: Machine, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition of a machine that boots holds; an error that shows all of it where it never does."""

        def holds() -> bool:
            time.sleep(_LOOK)
            machine.console.look()
            return condition()

        if not until(holds, seconds=acceleration.patience()):
            raise RuntimeError(f"it never holds that {what}: {self.told(machine)}")

    def steps(self, machine: Machine) -> dict[str, Json]:
        """Return the newest step of each kind in the timeline of its inspection."""
        return {entry["step"]: entry for entry in self.timeline(machine.name)}

    def let_time_pass(self, machine: Machine) -> None:
        """Make its inspection a day older, so that it times out."""
        node = self.node(machine.name)["uuid"]
        with create_engine(self._url, poolclass=NullPool).begin() as connection:
            connection.execute(
                text("UPDATE inspections SET clock_since = clock_since - 86400 WHERE node = :node"), {"node": node}
            )

    def slow_down(self, machine: Machine, *, megabits: int, lost: int = 0) -> None:
        """Give its first NIC a slow link, with queues of a third of a second; of every ``lost`` frames, one is lost."""
        tap, wire = machine.taps[0], self.lab.wire
        queue = f"qdisc add dev {tap} root tbf rate {megabits}mbit burst 32kb latency 300ms"
        done = wire.run("tc", *queue.split())
        if done.returncode:
            raise RuntimeError(f"tc {queue}: {done.stderr}")
        if lost:
            rules = _LOSSY.format(tap=tap, lost=lost)
            subprocess.run([*wire.prefix, "nft", "-f", "-"], input=rules.encode(), check=True)

    def speed_up(self, machine: Machine) -> None:
        """End what ``slow_down`` has begun."""
        tap = machine.taps[0]
        self.lab.wire.run("tc", "qdisc", "del", "dev", tap, "root")
        self.lab.wire.run("nft", "delete", "table", "netdev", f"lossy-{tap}")

    def open_boot_host(self) -> BootHost:
        """Return the boot host whose filter is open."""
        return next(host for host in self.hosts if host.pxe_filter and host.pxe_filter.ready("filter open"))

    def kill(self, host: BootHost) -> None:
        """The power of a boot host fails: nobody hears of it."""
        host.space.ip("link", "set", "boot", "down")
        host.cut()
        host.close()

    def told(self, machine: Machine) -> str:
        """Return what a failure of a test should show: the timeline, and the end of the console."""
        steps = [f"{entry['at']} {entry['step']}: {entry['message']}" for entry in self.timeline(machine.name)]
        return "\n".join([str(self.node(machine.name)["last_error"]), *steps, machine.console.text[-6000:]])

    def _prefix(self, role: str) -> Sequence[str]:
        if role != "worker":
            return super()._prefix(role)
        wire, database = self.lab.wire, make_url(self._url)
        place = f"{database.host}:{database.port}"
        self.lab.forward([f"{wire.name}@{place}", place])
        return wire.prefix

    def _start(self) -> None:
        super()._start()
        wire = self.lab.wire
        wire.ip("link", "add", "lonely", "type", "bridge")
        wire.ip("link", "set", "lonely", "up")
        self.hypervisor = Hypervisor(self, wire)
        self.bmc = Bmc(self, self.hypervisor, wire, SWITCH)
        self.lab.forward([f"127.0.0.1:{self.bmc.port}", self.bmc.place])
        self.bmc.wait_answers()
        for host in self.hosts:
            for file in (*map(Path, _LOADERS), *self.ramdisk.iterdir()):
                (host.tftp / file.name).symlink_to(file)
            self._serve(f"httpd-{host.name}", host.space.prefix, 8080, host.tftp)
        self._serve("images", wire.prefix, 8081, self.ramdisk)

    def _serve(self, name: str, prefix: Any, port: int, directory: Path) -> None:
        self.play(name, [*prefix, "busybox", "httpd", "-f", "-p", str(port), "-h", str(directory)])
