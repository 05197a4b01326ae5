"""A virtual machine whose power is switched: QEMU with iPXE as its firmware's network boot, emulated in software.

Its first NIC is on the boot network; its second one is connected to nothing. It has no disk, so whatever it does, it
got over the network. Software emulation is slow (about half a minute to the callback), and works everywhere.
"""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path
from typing import Final

from tests.support.processes import spawn
from tests.support.pxe.lab import Lab
from tests.support.pxe.netns import Netns

_TUN: Final = Path("/dev/net/tun")


class VirtualMachine:
    """``mac`` is the first NIC's; ``tap`` the name of its link in the namespace ``space``, which must be there."""

    def __init__(self, name: str, mac: str, space: Netns, tap: str, directory: Path) -> None:
        self.name = name
        self.mac = mac
        self.console = directory / f"{name}.console.log"
        self.starts = 0
        self._space = space
        self._tap = tap
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def spare(self) -> str:
        """The second NIC's MAC."""
        return f"{self.mac[:-2]}{int(self.mac[-2:], 16) ^ 0x80:02x}"

    @property
    def on(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def power_on(self) -> None:
        """Switch it on, unless it is."""
        if self.on:
            return
        self.starts += 1
        log = self._directory / f"{self.name}.log"
        command = [*self._space.prefix, *self._command()]
        self._process = spawn(command, user=None, directory=self._directory, log=log)

    def power_off(self) -> None:
        """Pull the plug."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def output(self) -> str:
        """Return what it wrote on its serial console."""
        return self.console.read_text(errors="replace") if self.console.exists() else ""

    def _command(self) -> list[str]:
        return [
            "qemu-system-x86_64", "-machine", "pc,accel=tcg,graphics=off", "-m", "1024", "-smp", "1",
            "-boot", "reboot-timeout=3000",  # a firmware whose boot order is through begins again
            "-display", "none", "-nodefaults", "-no-user-config", "-vga", "none",
            "-serial", f"file:{self.console}", "-monitor", "none",
            "-smbios", f"type=1,manufacturer=Ferroscope,product=Virtual machine,serial={self.name}",
            "-netdev", f"tap,id=boot,ifname={self._tap},script=no,downscript=no",
            "-device", f"virtio-net-pci,netdev=boot,mac={self.mac},bootindex=0",
            "-device", f"virtio-net-pci,mac={self.spare},romfile=",
        ]  # fmt: skip


def attach(lab: Lab, name: str, mac: str) -> VirtualMachine:
    """Return a new machine on the boot network, switched off."""
    need_tun()
    lab.wire.ip("tuntap", "add", name, "mode", "tap")
    lab.wire.ip("link", "set", name, "up")
    lab.plug(name)
    return VirtualMachine(name, mac, lab.wire, name, lab.directory)


def need_tun() -> None:
    """Make the device that virtual links are made of, where it is missing, as in many containers."""
    if not _TUN.exists():
        _TUN.parent.mkdir(exist_ok=True)
        os.mknod(_TUN, stat.S_IFCHR | 0o600, os.makedev(10, 200))
