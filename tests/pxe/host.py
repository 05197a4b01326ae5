"""A boot host: a namespace with a dnsmasq, and beside it whatever shall guard that.

The host is ready for DHCPv4, DHCPv6 and TFTP on its link ``boot``; ``mgmt`` leads to the database, and can be cut.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.service import executable
from tests.cluster.cluster import Played
from tests.pxe.netns import Netns
from tests.support.processes import spawn, until

_READY: Final = 10.0
_POOL: Final = 60

_DNSMASQ: Final = """\
port=0
interface=boot
bind-interfaces
except-interface=lo
user=root
quiet-dhcp
quiet-dhcp6
leasefile-ro
no-ping
dhcp-authoritative
dhcp-sequential-ip
dhcp-range=10.77.0.{first},10.77.0.{last},255.255.255.0,2m
dhcp-range=fd77::{number}:1,fd77::{number}:ffff,64,2m
dhcp-boot=undionly.kpxe
enable-tftp
tftp-root={tftp}
pid-file={directory}/dnsmasq.pid
dhcp-leasefile={directory}/dnsmasq.leases
"""


class BootHost:
    """``address`` is the DHCP server's, by which answers tell it; pools are disjoint."""

    def __init__(self, number: int, space: Netns, mgmt: Netns, base: Path) -> None:
        self.number = number
        self.name = f"boot{number}"
        self.space = space
        self.address = f"10.77.0.{10 + number}"
        self.directory = base / self.name
        self.tftp = self.directory / "tftp"
        self.tftp.mkdir(parents=True)
        self.configuration = self.directory / "dnsmasq.conf"
        self.gate: Played | None = None
        self._dnsmasq: subprocess.Popen[bytes] | None = None
        self._mgmt = mgmt
        space.ip("address", "add", f"{self.address}/24", "dev", "boot")
        space.ip("address", "add", f"fd77::{10 + number}/64", "dev", "boot")
        space.ip("address", "add", f"10.78.0.{10 + number}/24", "dev", "mgmt")
        self.heal()
        first = 50 + _POOL * (number - 1)
        self.configuration.write_text(
            _DNSMASQ.format(
                first=first, last=first + _POOL - 1, number=number, tftp=self.tftp, directory=self.directory
            )
        )

    @property
    def dnsmasq_pid(self) -> int:
        assert self._dnsmasq is not None
        return self._dnsmasq.pid

    @property
    def log(self) -> Path:
        """What dnsmasq says."""
        return self.directory / "dnsmasq.log"

    def start_dnsmasq(self) -> None:
        """Start it from ``configuration``; return when it listens."""
        program = ["dnsmasq", "--no-daemon", "--log-facility=-", f"--conf-file={self.configuration}"]
        before = self.log.stat().st_size if self.log.exists() else 0
        process = spawn([*self.space.prefix, *program], user=None, directory=self.directory, log=self.log)
        self._dnsmasq = process
        said = lambda: self.log.read_bytes()[before:].decode(errors="replace")  # noqa: E731
        until(lambda: "started" in said() or process.poll() is not None, seconds=_READY)
        if process.poll() is not None or "started" not in said():
            raise RuntimeError(f"the dnsmasq of {self.name} did not start: {said()}")

    def kill_dnsmasq(self) -> None:
        """End it with SIGKILL, if it runs."""
        if self._dnsmasq is not None:
            self._dnsmasq.kill()
            self._dnsmasq.wait()
            self._dnsmasq = None

    def start_gate(self, config: Path, *, words: Sequence[str] = (), before: Sequence[str] = ()) -> Played:
        """Start ``ferroscope pxe-filter`` here; ``before`` is what it runs under. It need not be ready yet."""
        command = [*self.space.prefix, *before, executable(), "pxe-filter", "-c", str(config), *words]
        self.gate = Played(f"pxe-filter-{self.number}", self.directory, command)
        return self.gate

    def cut(self) -> None:
        """From now on nothing passes between this host and the management network; nobody is told."""
        self._mgmt.ip("link", "set", self.name, "nomaster")

    def heal(self) -> None:
        """Everything passes again."""
        self._mgmt.ip("link", "set", self.name, "master", "m0")

    def close(self) -> None:
        """End what runs here."""
        if self.gate is not None:
            self.gate.end()
        self.kill_dnsmasq()
