"""A boot host: a namespace with a dnsmasq, and beside it whatever shall guard that.

The host is ready for DHCPv4, DHCPv6 and TFTP on its link ``boot``; ``mgmt`` leads to the database, and can be cut.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.service import executable
from ferroscope.config.options import BootSettings, InspectorSettings, PxeFilterSettings
from ferroscope.contrib.boot import dnsmasq, ipxe
from tests.support.installation import Played
from tests.support.pxe.netns import Netns

_PXE_FILTER: Final = PxeFilterSettings(interfaces=("boot",))
# What the product does not need: root has the files, nothing is kept, and a prober asks too often for a log.
_OPTIONS: Final = ("user=root", "leasefile-ro", "quiet-dhcp", "quiet-dhcp6")


def boot_settings(hosts: int, **changes: Any) -> BootSettings:
    """Return the ``[boot]`` section of the lab's hosts, all of them."""
    defaults = BootSettings(
        hosts=tuple(f"boot{number}" for number in range(1, hosts + 1)),
        addresses=tuple(f"boot{n} 10.77.0.{10 + n} fd77::{10 + n}" for n in range(1, hosts + 1)),
        ranges=("10.77.0.50-10.77.0.229", "fd77::1000-fd77::ffff"),
        callback_url="http://10.77.0.1:6385/v1/continue_inspection",
        kernel="vmlinuz",
        ramdisk="initramfs",
        kernel_options=("console=ttyS0", "quiet", "panic=1"),
    )
    return msgspec.structs.replace(defaults, **changes)


class BootHost:
    """``address`` is the DHCP server's, by which answers tell it; pools are disjoint."""

    def __init__(self, number: int, space: Netns, mgmt: Netns, base: Path) -> None:
        self.number = number
        self.name = f"boot{number}"
        self.space = space
        self.address = f"10.77.0.{10 + number}"
        self.address6 = f"fd77::{10 + number}"
        self.directory = base / self.name
        self.tftp = self.directory / "tftp"
        self.tftp.mkdir(parents=True)
        self.configuration = self.directory / "dnsmasq.conf"
        self.pxe_filter: Played | None = None
        self._dnsmasq: Played | None = None
        self._mgmt = mgmt
        space.ip("address", "add", f"{self.address}/24", "dev", "boot")
        space.ip("address", "add", f"{self.address6}/64", "dev", "boot")
        space.ip("address", "add", f"10.78.0.{10 + number}/24", "dev", "mgmt")
        self.heal()

    def configure(self, settings: BootSettings) -> None:
        """Write what ``ferroscope pxe config`` makes for this host."""
        options = (*_OPTIONS, f"pid-file={self.directory / 'dnsmasq.pid'}")
        mine = msgspec.structs.replace(settings, tftp_root=str(self.tftp), dnsmasq_options=options)
        self.configuration.write_text(dnsmasq.configuration(mine, _PXE_FILTER, self.name))
        (self.tftp / dnsmasq.SCRIPT_NAME).write_text(ipxe.script(mine, InspectorSettings(), self.name))

    @property
    def dnsmasq_pid(self) -> int:
        assert self._dnsmasq is not None
        return self._dnsmasq.pid

    def boot_closed(self, ruleset: bytes) -> None:
        """Load what ``ferroscope-pxe-closed.service`` loads before the network comes up."""
        self.nft(ruleset.decode())

    def nft(self, commands: str) -> None:
        """Run other commands of nftables here."""
        subprocess.run([*self.space.prefix, "nft", "-f", "-"], input=commands.encode(), check=True)

    def start_dnsmasq(self) -> None:
        """Start it from ``configuration``; return when it listens."""
        program = ["dnsmasq", "--keep-in-foreground", "--log-facility=-", f"--conf-file={self.configuration}"]
        self._dnsmasq = Played("dnsmasq", self.directory, [*self.space.prefix, *program])
        self._dnsmasq.wait_ready("started")

    def kill_dnsmasq(self) -> None:
        """End it with SIGKILL, if it runs."""
        if self._dnsmasq is not None:
            self._dnsmasq.kill()
            self._dnsmasq = None

    def start_pxe_filter(
        self, config: Path, *, before: Sequence[str] = (), program: Sequence[str] | None = None
    ) -> Played:
        """Start ``ferroscope pxe-filter`` here; it need not be ready yet.

        ``before`` is what it runs under, ``program`` what is run as ``ferroscope``.
        """
        command = [*self.space.prefix, *before, *(program or [executable()]), "pxe-filter", "-c", str(config)]
        self.pxe_filter = Played(f"pxe-filter-{self.number}", self.directory, command)
        return self.pxe_filter

    def last_words(self) -> str:
        """Return the last line that the filter here has logged."""
        lines = self.pxe_filter.output().splitlines() if self.pxe_filter is not None else []
        return f"{self.name}: {lines[-1] if lines else 'no pxe_filter'}"

    def cut(self) -> None:
        """From now on nothing passes between this host and the management network; nobody is told."""
        self._mgmt.ip("link", "set", self.name, "nomaster")

    def heal(self) -> None:
        """Everything passes again."""
        self._mgmt.ip("link", "set", self.name, "master", "m0")

    def close(self) -> None:
        """End what runs here."""
        if self.pxe_filter is not None:
            self.pxe_filter.end()
        self.kill_dnsmasq()
