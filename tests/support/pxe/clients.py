"""DHCP clients as machines have them: busybox's udhcpc for DHCPv4, ISC's dhclient for DHCPv6.

They ask, say what they were given, and configure nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from tests.support.processes import spawn, until
from tests.support.pxe import solicit
from tests.support.pxe.netns import Netns

_TELL: Final = """#!/bin/sh
[ "$1" = bound ] && printf '%s\\n' "$ip" "$serverid" "$boot_file" "$siaddr" > {answer}
exit 0
"""
_GIVEN: Final = re.compile(r"iaaddr (\S+) .*server-id (\S+);", re.DOTALL)


class Lease(msgspec.Struct, frozen=True):
    """What a server gave: an address, and who it was (its address, or its DUID with DHCPv6)."""

    address: str
    server: str
    boot_file: str = ""
    next_server: str = ""


class Client:
    """One machine's NIC; ``space`` is its namespace."""

    def __init__(self, space: Netns, directory: Path, mac: str) -> None:
        self.mac = mac
        self.space = space
        self._answer = directory / f"{space.name}.answer"
        self._script = directory / f"{space.name}.sh"
        self._script.write_text(_TELL.format(answer=self._answer))
        self._script.chmod(0o755)
        self._directory = directory

    def dhcp(self, *, seconds: int = 2, says: tuple[str, ...] = ()) -> Lease | None:
        """Ask with DHCPv4, once a second for so many seconds; None where nobody gives an address.

        ``says`` are more options as udhcpc has them, ``CODE:HEX``.
        """
        self._answer.unlink(missing_ok=True)
        options = ["-s", str(self._script), "-f", "-n", "-q", "-t", str(seconds), "-T", "1", "-A", "1"]
        options += [word for said in says for word in ("-x", said)]
        self.space.run("busybox", "udhcpc", "-i", "eth0", *options, timeout=seconds + 20)
        if not self._answer.exists():
            return None
        address, server, boot_file, next_server = self._answer.read_text().split("\n")[:4]
        return Lease(address, server, boot_file, next_server)

    def dhcp6(self, *, seconds: float = 4.0) -> Lease | None:
        """Ask with DHCPv6 for so many seconds; None where nobody gives an address."""
        leases, pid = (self._directory / f"{self.space.name}.{what}6" for what in ("leases", "pid"))
        leases.write_text("")
        words = ["dhclient", "-6", "-d", "-1", "-lf", str(leases), "-pf", str(pid), "-sf", "/bin/true", "eth0"]
        log = self._directory / f"{self.space.name}.dhclient.log"
        process = spawn([*self.space.prefix, *words], user=None, directory=self._directory, log=log)
        try:
            until(lambda: _GIVEN.search(leases.read_text()) is not None, seconds=seconds)
        finally:
            process.kill()
            process.wait()
        given = _GIVEN.search(leases.read_text())
        return Lease(given[1], given[2]) if given else None

    def offered6(self, *, arch: int | None, user_class: str = "", seconds: float = 4.0) -> dict[int, bytes] | None:
        """Ask with DHCPv6 as a firmware, or as iPXE; return the options of what is advertised, or None."""
        message = solicit.solicit(self.mac, arch=arch, user_class=user_class, xid=os.urandom(3))
        with self.space.entered():
            return solicit.ask("eth0", message, seconds=seconds)
