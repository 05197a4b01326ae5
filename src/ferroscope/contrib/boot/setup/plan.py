"""Plans a boot host: proposals for the questions, the settings, and the files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import Settings
from ferroscope.contrib.boot import dnsmasq, ipxe
from ferroscope.contrib.boot.addresses import Address as IpAddress
from ferroscope.contrib.boot.addresses import AddressError, parse_all
from ferroscope.contrib.boot.host_facts import Address, HostInterface
from ferroscope.node_boot import HOST

HTTP_PORT: Final = 8080
# More addresses are rarely needed at the same time, and fewer are easier to tell from others.
_MAX_ADDRESSES: Final = 1000
_MIN_ADDRESSES: Final = 4
_MAX_OFFSET: Final = 0xFFFF
WEB_SITE: Final = Path("/etc/nginx/conf.d/ferroscope.conf")
RULESET: Final = Path("/etc/ferroscope/pxe-closed.nft")
UNITS: Final = ("ferroscope-pxe-closed.service", "ferroscope-pxe-filter.service")
# It does not exist if the kernel was told to do without IPv6.
_IPV6: Final = Path("/proc/net/if_inet6")
# The directory of replaced files: not beside them, because dnsmasq reads all files of its directory.
BACKUPS: Final = Path("/var/backups/ferroscope")

# Listen addresses that do not say where the service is.
_UNREACHABLE: Final = ("localhost", "127.0.0.1", "::1", "::", "0.0.0.0")  # noqa: S104  # they are compared

Sections = dict[str, dict[str, str]]


class PlanError(ValueError):
    """An answer that cannot work; the message says why, ``advice`` what to do."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class BootHost(msgspec.Struct, frozen=True):
    """The answers. ``ranges`` is empty beside another DHCP server, which assigns the addresses."""

    name: str
    interface: str
    address: Address
    ranges: tuple[str, ...] = ()

    @property
    def proxy(self) -> bool:
        return not self.ranges


class InstallTarget(msgspec.Struct, frozen=True):
    """A file to write."""

    path: Path
    content: bytes
    mode: int = 0o644


def propose_interface(interfaces: Sequence[HostInterface]) -> str:
    """Return the interface on which machines most likely boot: one with an address, and without the default route."""
    with_address = [interface for interface in interfaces if interface.addresses]
    ranked = sorted(with_address, key=lambda interface: (interface.routes, not interface.up, interface.name))
    return ranked[0].name if ranked else ""


def choose_interface(interfaces: Sequence[HostInterface], name: str) -> tuple[HostInterface, Address]:
    """Return the interface of this name and its address, an IPv4 one if there is any; ``PlanError``."""
    names = ", ".join(map(str, interfaces)) or "none"
    match = next((interface for interface in interfaces if interface.name == name), None)
    if match is None:
        raise PlanError(f"interface {name!r} does not exist", f"interfaces of this host: {names}")
    usable = [address for address in match.addresses if address.network.prefixlen < address.max_prefixlen - 1]
    if not usable:
        advice = f"give it a fixed address of the boot network first, such as: ip address add 10.0.0.11/24 dev {name}"
        raise PlanError(f"the interface {name} has no address, which a boot host needs there", advice)
    return match, min(usable, key=lambda address: address.version)


def propose_url(hosts: Iterable[str], settings: Settings) -> str:
    """Return the URL at which machines reach the api: a configured one, else that of an address of this host."""
    address = next((host for host in map(str.strip, hosts) if host and host not in _UNREACHABLE), "")
    url = settings.api.url_at(address)
    return settings.callback_base or (url if address and settings.api.bare_metal_port else "")


def propose_range(address: Address, taken: Iterable[IpAddress]) -> str:
    """Return a range in the largest gap between addresses that are in use; "" if there is no room.

    It is the second half of the gap: fixed addresses are usually the first ones. Of IPv6, the first 64 Ki are enough.
    """
    network = address.network
    bottom, top = int(network.network_address), int(network.broadcast_address)
    top = min(top, bottom + _MAX_OFFSET) if network.version == 6 else top
    used = {int(in_use) for in_use in (*taken, address.ip) if in_use in network and int(in_use) < top}
    marks = sorted({bottom, top, *used})
    gap, first, last = max((high - low - 1, low + 1, high - 1) for low, high in pairwise(marks))
    if gap < _MIN_ADDRESSES:
        return ""
    begin = max(first + gap // 2, last - _MAX_ADDRESSES + 1)
    kind = type(network.network_address)
    bits = f"/{network.prefixlen}" if network.version == 6 and network.prefixlen != 64 else ""
    return f"{kind(begin)}-{kind(last)}{bits}"


def check_ranges(ranges: Sequence[str], address: Address) -> None:
    """Raise ``PlanError`` for ranges that are not on the interface's network, or contain the host's address."""
    try:
        parsed = parse_all(ranges, hosts=1)
    except AddressError as exc:
        raise PlanError(str(exc)) from exc
    for pool in parsed:
        relayed = pool.router if pool.version == 6 else pool.netmask
        if pool.version != address.version or relayed:
            continue
        if pool.first not in address.network or pool.last not in address.network:
            advice = f"for example: {propose_range(address, ()) or 'choose addresses of that network'}"
            raise PlanError(f"the range {pool} is not in {address.network}, the network of the interface", advice)
        if address.ip in pool:
            raise PlanError(f"the range {pool} contains {address.ip}, the address of this host itself")


def sections(host: BootHost, existing: Settings | None) -> Sections:
    """Return the settings that make this host a boot host; ``PlanError`` if others have been set up without it."""
    ports = existing.pxe_filter.http_ports if existing is not None else ()
    url = urlsplit(existing.boot.http_url.replace(HOST, "host") if existing is not None else "")
    port = ports[0] if ports else url.port or HTTP_PORT
    boot = {
        "hosts": host.name,
        "addresses": f"{host.name} {host.address.ip}",
        "http_url": f"http://{HOST}:{port}/",
    }
    if existing is not None and existing.boot.hosts:
        if host.name not in existing.boot.hosts:
            raise PlanError(
                f"[boot] hosts has {', '.join(existing.boot.hosts)}, but not this host, {host.name}",
                "add it to [boot] hosts and addresses on all boot hosts, then run this on each of them",
            )
        boot = {name: value for name, value in boot.items() if not getattr(existing.boot, name)}
    boot |= {"proxied_networks": str(host.address.network)} if host.proxy else {"ranges": ", ".join(host.ranges)}
    pxe_filter = {"interfaces": host.interface} | ({} if ports else {"http_ports": str(port)})
    return {"boot": boot, "pxe_filter": pxe_filter}


def targets(settings: Settings, name: str, ruleset: str) -> list[InstallTarget]:
    """Return the files of the boot host, except for units; ``ValueError``. ``ruleset``: the closed filter."""
    boot = settings.boot
    root = Path(boot.tftp_root)
    files = {
        RULESET: ruleset,
        Path(boot.dnsmasq_config): dnsmasq.configuration(boot, settings.pxe_filter, name),
        root / dnsmasq.SCRIPT_NAME: ipxe.script(boot, settings.inspector, name),
    }
    if boot.http_url and settings.pxe_filter.http_ports:
        files[WEB_SITE] = web_site(root, settings.pxe_filter.http_ports[0], ipv6=_IPV6.exists())
    return [InstallTarget(path, text.encode()) for path, text in files.items()]


def web_site(root: Path, port: int, *, ipv6: bool = True) -> str:
    """Return the site of nginx that serves the boot files. ``ipv6``: this host has it; else nginx would not start."""
    also = f"\n    listen [::]:{port};" if ipv6 else ""
    return f"""\
# Boot files for machines. Generated by: ferroscope setup. The PXE filter decides who reaches this port.
server {{
    listen {port};{also}
    root {root};
    default_type application/octet-stream;
    server_tokens off;
    sendfile on;
    tcp_nopush on;
}}
"""


def is_ours(content: bytes) -> bool:
    """Whether a file was generated by this service, so that a newer one may replace it."""
    return b"erroscope" in content[:600]
