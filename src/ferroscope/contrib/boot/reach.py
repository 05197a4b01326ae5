"""Whether machines reach the servers that they load from and call, seen from their own networks. Pure.

This host sees the servers from another place: it may have an address in a network that machines cannot reach.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import BootSettings
from ferroscope.contrib.boot import dnsmasq
from ferroscope.contrib.boot.addresses import Address, parse_all, proxied_networks
from ferroscope.node_boot import HOST
from ferroscope_client.core.values import is_loopback

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface

# How dnsmasq's lines may name an option: name server, and classless static routes (RFC 3442).
_NAME_SERVERS: Final = {4: ("option:dns-server", "6"), 6: ("option6:dns-server", "option6:23")}
_ROUTES: Final = frozenset({"option:classless-static-route", "121"})


class Segment(msgspec.Struct, frozen=True):
    """A network of machines.

    ``source``: the server that assigns addresses; ``routed``: machines learn a route out of it.
    """

    source: str
    network: Network
    routed: bool


class Gap(msgspec.Struct, frozen=True):
    """Something that machines cannot reach, and what to do."""

    summary: str
    advice: str


def segments(settings: BootSettings, local: Collection[Interface], routers: Mapping[str, str]) -> Iterator[Segment]:
    """Yield the known networks of machines; ``AddressError``, ``AddressError``.

    ``local``: this host's addresses on them; ``routers``: what other DHCP servers offer, by an offered address.
    """
    for pool in parse_all(settings.ranges, hosts=len(settings.hosts)):
        if pool.bits is not None:
            network = ipaddress.ip_network((pool.first, pool.bits), strict=False)
        elif (
            own := next((interface.network for interface in local if pool.first in interface.network), None)
        ) is not None:
            network = own
        else:
            continue
        static = pool.version == 4 and bool(_ROUTES & dnsmasq.added_options(settings))
        yield Segment(f"the range {pool}", network, bool(pool.router) or static)
    for network in proxied_networks(settings):
        for offered, router in routers.items():
            if ipaddress.ip_address(offered) in network:
                yield Segment(f"the other DHCP server of {network}", network, bool(router))


def gaps(
    settings: BootSettings, own: Iterable[Address], networks: Collection[Segment],
    resolve: Callable[[str], Collection[Address]],
) -> Iterator[Gap]:  # fmt: skip
    """Yield what machines of these networks cannot reach. ``own``: the addresses that stand for ``{host}``."""
    for host, options in _places(settings).items():
        if host == HOST:
            addresses: Collection[Address] = [address for address in own if not address.is_loopback]
        elif (literal := _literal(host)) is not None:
            addresses = (literal,)
        else:
            versions = {segment.network.version for segment in networks}
            # Another DHCP server has its own name servers.
            if not settings.proxied_networks and not any(
                dnsmasq.added_options(settings) & {*_NAME_SERVERS[family]} for family in versions
            ):
                yield Gap(
                    f"machines cannot resolve {host} of [boot] {options}: no name server is offered to them",
                    "use an address in the URL, or add to [boot] dnsmasq_options: "
                    f"dhcp-option={_NAME_SERVERS[min(versions)][0]},ADDRESS",
                )
            addresses = resolve(host)
        yield from _find_gaps(host, options, addresses, networks)


def _find_gaps(host: str, options: str, addresses: Collection[Address], networks: Collection[Segment]) -> Iterator[Gap]:
    """Yield the networks whose machines reach the host by none of the families of its addresses."""
    if not addresses or not networks:
        return
    missing: list[tuple[Address, list[Segment]]] = []
    for version in {address.version for address in addresses}:
        theirs = [address for address in addresses if address.version == version]
        places = [segment for segment in networks if segment.network.version == version]
        without = [
            segment for segment in places if not segment.routed and not any(each in segment.network for each in theirs)
        ]
        if places and not without:
            return
        missing.append((theirs[0], without))
    address, without = max(missing, key=lambda pair: len(pair[1]))
    shown = str(address) if str(address) == host else f"{address} ({host})".replace(HOST, "this host")
    if not without:
        summary = f"machines cannot reach {shown} of [boot] {options}: they get no IPv{address.version} address"
        yield Gap(summary, f"add an IPv{address.version} range, or use an address of the other family in the URL")
    for segment in without:
        summary = (
            f"machines cannot reach {shown} of [boot] {options}: it is not in {segment.network}, and {segment.source} "
        )
        yield Gap(f"{summary}offers no router", _advice(segment))


def _advice(segment: Segment) -> str:
    place = f"use an address of {segment.network} in the URL"
    if not segment.source.startswith("the range "):
        return f"let that DHCP server offer a router, or {place}"
    added = f"add @ROUTER to it in [boot] ranges, with the router's address in {segment.network}"
    if segment.network.version == 6:
        added = f"{added}, which has to advertise itself there"
    return f"{added}, and run: ferroscope pxe config --install; or {place}"


def _places(settings: BootSettings) -> Mapping[str, str]:
    """Return the options with URLs that machines use, by host."""
    options_by_host: dict[str, list[str]] = {}
    for option in ("callback_url", "machine_script_url", "http_url", "kernel", "ramdisk"):
        try:
            host = urlsplit(getattr(settings, option).replace(HOST, "boot-host")).hostname or ""
        except ValueError:  # another check reports that
            continue
        if HOST in getattr(settings, option):
            host = HOST
        if host and not is_loopback(host):
            options_by_host.setdefault(host, []).append(option)
    if not settings.http_url:  # the boot host serves all files over TFTP
        options_by_host.setdefault(HOST, []).append("addresses")
    return {host: " and ".join(options) for host, options in options_by_host.items()}


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
