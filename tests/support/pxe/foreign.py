"""A DHCP server that was there before: ISC's dhcpd, which knows nothing of booting."""

from __future__ import annotations

from typing import Final

from tests.support.pxe import netns
from tests.support.pxe.lab import Lab

ADDRESS: Final = "10.77.0.2"
FIRST: Final = "10.77.0.150"
LAST: Final = "10.77.0.179"
# As on a Windows server, the next server is the DHCP server itself, which serves no boot files.
_CONFIGURATION: Final = f"""\
authoritative;
next-server {ADDRESS};
subnet 10.77.0.0 netmask 255.255.255.0 {{
    range {FIRST} {LAST};
    option routers {ADDRESS};
}}
"""


def serve(lab: Lab) -> None:
    """Let one assign addresses on the boot network; return when it listens."""
    space = netns.Netns(f"{id(lab) % 1000}-dhcpd")
    lab.after(space.close)
    netns.connect(space, "eth0", lab.wire, "dhcpd")
    lab.plug("dhcpd")
    space.ip("address", "add", f"{ADDRESS}/24", "dev", "eth0")
    files = {name: lab.directory / f"dhcpd.{name}" for name in ("conf", "leases", "pid")}
    files["conf"].write_text(_CONFIGURATION)
    files["leases"].write_text("")
    words = ["-4", "-d", "-f", "-cf", files["conf"], "-lf", files["leases"], "-pf", files["pid"], "eth0"]
    lab.play("dhcpd", [*space.prefix, "dhcpd", *map(str, words)]).wait_ready("starting service")


def is_its(address: str) -> bool:
    """Whether it assigns this address."""
    first, last = (int(one.rpartition(".")[2]) for one in (FIRST, LAST))
    network, _, number = address.rpartition(".")
    return network == "10.77.0" and number.isdigit() and first <= int(number) <= last
