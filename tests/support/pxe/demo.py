"""``python3 -m tools demo-pxe``: the whole product on one machine, from the power button to the inventory.

Three boot hosts in network namespaces, each with dnsmasq and a PXE filter; two virtual machines that boot from the
network; the service on SQLite. Half-way the host whose filter is open loses it. Nothing is simulated but the
machines' BMCs, and nothing remains. Needs root, for the namespaces.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from ferroscope.cli.client import Json
from ferroscope.cli.exits import Exit
from ferroscope.cli.node import columns, timeline
from ferroscope.cli.output import console, table
from ferroscope.cli.watch import FINISHED, Target, Watch
from ferroscope.cli.watch_display import Display, display, follow
from tests.support.pxe.host import BootHost
from tests.support.pxe.machine import VirtualMachine, attach
from tests.support.pxe.prober import closings, doubles
from tests.support.pxe.site import Plan, Site, upgraded

if TYPE_CHECKING:
    from rich.console import Console

# Known to nobody, and with unknown_hosts = allow let in by every open filter: it shows who is open.
PROBE: Final = "52:54:00:ee:00:01"
_OPTIONS: Final = "unknown_hosts = allow\n[lease]\nprofile = fast\n[inspector]\nhooks = $default_hooks,memory\n"
_SECONDS: Final = 240.0
# Until then a machine that was just enrolled is still an unknown one for the open filter.
_HEARD: Final = 2.0
# What is worth telling of a machine's console.
_STEPS: Final = {
    r"net0: (\d+\.\S+)/\S+": "iPXE has the address {0}",
    r"Next server: (\S+)": "its boot host is {0}",
    r"tftp://\S+/(boot\.ipxe)\.\.\. ok": "loaded the script {0}",
    r"tftp://\S+/(vmlinuz)\.\.\.[^a-z]*ok": "loaded the kernel",
    r"ramdisk: has (\S+) from (\S+)": "the ramdisk has the address {0} from {1}",
    r"ramdisk: called back": "the ramdisk has posted its inventory",
}
_GO_ON: Final = """
Go on:

    python3 -m tools chaos-pxe --minutes 5      # the open filter killed, frozen, cut off, again and again
    ferroscope pxe config --help                # what dnsmasq and the machines were given, for your own boot hosts
    docs/how-to/set-up-a-boot-host.md           # the same on real hosts
"""


class SerialConsole:
    """Tells what a machine writes on its serial console, each thing once."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine
        self._told: set[str] = set()

    def fresh(self) -> list[str]:
        """Return what is new, in sentences."""
        said = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self._machine.output())
        found = []
        for pattern, sentence in _STEPS.items():
            match = re.search(pattern, said)
            if match and pattern not in self._told:
                self._told.add(pattern)
                found.append(f"{self._machine.name}: {sentence.format(*match.groups())}")
        return found


class Story:
    """One performance, told on ``screen``."""

    def __init__(self, directory: Path, screen: Console) -> None:
        self._directory = directory
        self._screen = screen
        self._began = time.monotonic()
        self._killed: BootHost | None = None

    def play(self) -> None:
        """Everything from the empty database to the last machine."""
        self._head("The service: SQLite, api and worker; three boot hosts, each with a dnsmasq and a PXE filter")
        url = upgraded(self._directory, f"sqlite:///{self._directory}/ferroscope.db")
        with Site(self._directory, url, Plan(options=_OPTIONS)) as site:
            self._site = site
            site.install_ramdisk()
            self._show_hosts()
            self._prober = prober = site.lab.prober()
            prober.add(PROBE)
            host = site.open_host(prober, PROBE)
            self._say(f"A machine that asks all three at once is answered by {host.name} alone: its filter is open.")
            machines = self._enroll()
            self._inspect(machines, host)
            self._show_pxe_filters(host)
            self._show_one(machines[0])

    def _show_hosts(self) -> None:
        rows = [
            (host.name, host.space.name, host.address, _given(host), str(host.dnsmasq_pid), str(host.pxe_filter.pid))
            for host in self._site.hosts
            if host.pxe_filter is not None
        ]
        titles = ("HOST", "NAMESPACE", "ADDRESS", "GIVES", "DNSMASQ", "PXE FILTER")
        self._screen.print(table(titles, rows))
        self._say("Their configuration comes from [boot] (ferroscope pxe config): no two give the same address.")

    def _enroll(self) -> list[VirtualMachine]:
        self._head("The machines: two virtual ones, enrolled by their MACs, switched off")
        machines = [attach(self._site.lab, f"vm{number}", f"52:54:00:fe:00:0{number}") for number in (1, 2)]
        for machine in machines:
            self._site.machines[machine.name] = machine
            self._site.enroll(machine.name, machine.mac)
        time.sleep(_HEARD)
        self._prober.add(*(machine.mac for machine in machines))
        if any(self._prober.quiet(machine.mac, seconds=1.0) for machine in machines):
            raise click.ClickException("a known machine that is not inspected was answered")
        self._prober.remove(*(machine.mac for machine in machines))
        self._say("vm1 and vm2 are known and idle: asked for 40 times, no boot host answers them.")
        return machines

    def _inspect(self, machines: list[VirtualMachine], host: BootHost) -> None:
        self._head("The inspections: both machines are switched on, and boot from the network")
        targets = [Target(self._site.node(machine.name)["uuid"], machine.name) for machine in machines]
        consoles = [SerialConsole(machine) for machine in machines]
        watch = Watch(self._site.api, targets)
        with display() as shown:
            follow(watch, shown, timeout=_SECONDS, also=lambda: self._act(consoles, shown, host))
        bad = [end for end in watch.ended if end.result != FINISHED]
        if bad:
            raise click.ClickException(f"{bad[0].node} did not finish: {bad[0].error}")
        self._say("Both finished.", style="bold green")

    def _act(self, consoles: list[SerialConsole], shown: Display, host: BootHost) -> None:
        told = [line for one in consoles for line in one.fresh()]
        for line in told:
            shown.say(f"    {line}", style="dim")
        if self._killed is None and any("loaded the script" in line for line in told) and host.pxe_filter is not None:
            shown.say(
                f"SIGKILL to the filter of {host.name} (pid {host.pxe_filter.pid}), while kernels load",
                style="bold yellow",
            )
            host.pxe_filter.kill()
            self._killed = host

    def _show_pxe_filters(self, host: BootHost) -> None:
        self._prober.look()
        self._head(f"What {host.name}'s end meant for the boot network")
        closed = [one for one in closings(self._prober.answers, PROBE, longer=1.0) if one.before != one.after]
        names = {one.address: one.name for one in self._site.hosts}
        for one in closed:
            self._say(f"The kernel closed {names[one.before]}; {names[one.after]} opened {one.seconds:.1f} s later.")
        both = doubles(self._prober.answers)
        if both or not closed:
            raise click.ClickException(f"{len(both)} questions were answered by two hosts; {len(closed)} fail-overs")
        self._say(f"{len(self._prober.answers)} questions were answered, none of them by two hosts.")

    def _show_one(self, machine: VirtualMachine) -> None:
        name = machine.name
        self._head(f"What is known of {name} now (ferroscope node inventory {name})")
        columns.draw(self._screen, self._inventory(name))
        self._head(f"What happened to it (ferroscope node timeline {name})")
        timeline.draw(self._screen, timeline.fetch(self._site.api, self._site.node(name)["uuid"], newest_only=True))

    def _inventory(self, name: str) -> Json:
        return self._site.inventory(name)

    def _head(self, text: str) -> None:
        self._screen.print(f"\n[{time.monotonic() - self._began:4.1f} s] {text}", style="bold cyan")

    def _say(self, text: str, style: str = "") -> None:
        self._screen.print(text, style=style)


def _given(host: BootHost) -> str:
    ranges = re.findall(r"^dhcp-range=set:\w+,([^,]+),([^,]+),", host.configuration.read_text(), re.MULTILINE)
    return f"{ranges[0][0]} to {ranges[0][1]}"


@click.command()
def main() -> None:
    """Show the whole product at work: boot hosts, filters, and machines that boot through them."""
    if os.geteuid() != 0:
        raise click.ClickException("this demo makes network namespaces, which needs root: sudo make demo-pxe")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.INTERRUPTED))
    began = time.monotonic()
    screen = console()
    directory = Path(tempfile.mkdtemp(prefix="ferroscope-demo-pxe-"))
    try:
        Story(directory, screen).play()
    except (click.ClickException, RuntimeError) as exc:
        click.echo(f"Error: {exc}\nthe logs are in {directory}", err=True)
        sys.exit(Exit.FAILURE)
    except (KeyboardInterrupt, SystemExit):
        shutil.rmtree(directory)
        sys.exit(Exit.INTERRUPTED)
    shutil.rmtree(directory)
    screen.print(f"\nDone in {time.monotonic() - began:.1f} s; nothing of it is left.", style="bold")
    click.echo(_GO_ON, nl=False)


if __name__ == "__main__":
    main()
