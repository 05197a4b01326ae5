"""Facts about this host: its network interfaces, missing programs and files, and running units."""

from __future__ import annotations

import ipaddress
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from ferroscope_client.core import json_safety
from ferroscope_client.core.host_spelling import parse_address

PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


Address = ipaddress.IPv4Interface | ipaddress.IPv6Interface


SYSTEMD: Final = Path("/run/systemd/system")
# Program -> Debian package. The package dnsmasq has the service; dnsmasq-base has the program only.
_PROGRAMS: Final = {"dnsmasq": "dnsmasq", "nft": "nftables", "nginx": "nginx-light", "ip": "iproute2"}
LOADERS: Final = Path("/usr/lib/ipxe")
_SYSTEMCTL_SECONDS: Final = 10
UNIT_DIRECTORIES: Final = tuple(
    Path(directory) for directory in ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
)


class HostInterface(msgspec.Struct, frozen=True):
    """A network interface. ``addresses``: without link-local ones; ``routes``: the host's default route is there."""

    name: str
    addresses: tuple[Address, ...] = ()
    up: bool = False
    routes: bool = False
    bridge: bool = False

    def __str__(self) -> str:
        words = [*map(str, self.addresses)] or ["no address"]
        words += ["down"] * (not self.up) + ["default route"] * self.routes
        return f"{self.name} ({', '.join(words)})"


class FactsError(Exception):
    """The host cannot be examined; the message says why."""


def interfaces() -> list[HostInterface]:
    """Return the interfaces that machines could be connected to; ``FactsError``."""
    through = {str(route.get("dev", "")) for route in _ip("route", "show", "default")}
    links = []
    for link in _ip("-details", "address", "show"):
        if "LOOPBACK" in link.get("flags", ()) or not link.get("ifname"):
            continue
        addresses = [
            ipaddress.ip_interface(f"{entry['local']}/{entry['prefixlen']}")
            for entry in link.get("addr_info", ())
            if entry.get("family") in ("inet", "inet6") and not entry.get("temporary")
        ]
        links.append(
            HostInterface(
                link["ifname"],
                tuple(address for address in addresses if not address.ip.is_link_local),
                up="LOWER_UP" in link.get("flags", ()),
                routes=link["ifname"] in through,
                bridge=link.get("linkinfo", {}).get("info_kind") == "bridge",
            )
        )
    return links


def neighbours(interface: str, version: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """Return the addresses in use on this network that the host has seen; ``FactsError``."""
    family = f"-{version}"
    rows = [*_ip(family, "neighbour", "show", "dev", interface), *_ip(family, "route", "show", "dev", interface)]
    words = [row.get(key) for row in rows for key in ("dst", "gateway")]
    return [address for word in words if isinstance(word, str) and (address := parse_address(word)) is not None]


def _ip(*words: str) -> list[dict[str, Any]]:
    program = shutil.which("ip", path=PATH)
    if program is None:
        raise FactsError("ip is not installed: apt-get install iproute2")
    command = [program, "-json", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)  # noqa: S603  # ip(8)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise FactsError(f"cannot run {' '.join(command)}: {exc}") from exc
    if done.returncode:
        raise FactsError(f"{' '.join(command)}: {done.stderr.strip()}")
    links = json_safety.decode_own(done.stdout or "[]")
    return [link for link in links if isinstance(link, dict)]


def listens(port: int, *, udp: bool) -> bool:
    """Whether a program of this network namespace has the port."""
    return port in set(_ports("udp" if udp else "tcp", closed="" if udp else "0A"))


def _ports(protocol: str, *, closed: str) -> Iterator[int]:
    for name in (protocol, f"{protocol}6"):
        path = Path("/proc/thread-self/net", name)
        for line in path.read_text().splitlines()[1:] if path.exists() else ():
            words = line.split()
            if not closed or words[3] == closed:
                yield int(words[1].rpartition(":")[2], 16)


def missing_packages() -> list[str]:
    """Return the missing Debian packages of a boot host."""
    lacking = [package for program, package in _PROGRAMS.items() if shutil.which(program, path=PATH) is None]
    if "dnsmasq" not in lacking and SYSTEMD.is_dir() and unit("dnsmasq.service") is None:
        lacking.append("dnsmasq")
    if not (LOADERS / "undionly.kpxe").exists():
        lacking.append("ipxe")
    return sorted(lacking)


def unit(name: str) -> Path | None:
    """Return the file of an installed unit."""
    return next((place / name for place in UNIT_DIRECTORIES if (place / name).exists()), None)


def is_active(name: str) -> bool:
    """Whether systemd runs a unit."""
    try:
        done = subprocess.run(  # noqa: S603  # systemctl(1)
            [shutil.which("systemctl") or "systemctl", "is-active", "--quiet", name],
            capture_output=True, timeout=_SYSTEMCTL_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
