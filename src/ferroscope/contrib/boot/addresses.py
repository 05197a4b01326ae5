"""The addresses of boot hosts and their machines: what ``[boot]`` hosts, addresses, ranges and proxied_networks say."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import BootSettings
from ferroscope.node_boot import HOST

# Address ranges, and each boot host's share of them. Shares are disjoint, so that no address is assigned twice after a
# failover.
#
# A range is written ``FIRST-LAST`` (or ``FIRST-LAST/BITS`` behind a relay, with ``@ROUTER`` at the end). All hosts have
# the same lists of hosts and ranges, so each derives its share from its position without communication.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX_BITS: Final = 64


class AddressError(ValueError):
    """A range, address, network or host in ``[boot]`` that cannot be used; the message says which, why, and what is
    expected."""


class DhcpRange(msgspec.Struct, frozen=True):
    """Addresses from ``first`` to ``last``. ``bits``: prefix length, None for a local link; ``router``: behind a
    relay."""

    first: Address
    last: Address
    bits: int | None = None
    router: str = ""

    @property
    def size(self) -> int:
        return int(self.last) - int(self.first) + 1

    @property
    def version(self) -> int:
        return self.first.version

    def __contains__(self, address: Address) -> bool:
        return address.version == self.version and int(self.first) <= int(address) <= int(self.last)

    @property
    def netmask(self) -> str:
        """The netmask, which dnsmasq needs for networks that are not local; empty for local ones."""
        return str(ipaddress.IPv4Network((0, self.bits)).netmask) if self.bits is not None else ""

    def part(self, number: int, count: int) -> DhcpRange:
        """Return the share of host ``number`` (from 0) of ``count``; the remainder of the division stays unused."""
        share = self.size // count
        first = self.first + share * number
        return msgspec.structs.replace(self, first=first, last=first + (share - 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse(text: str, *, hosts: int) -> DhcpRange:
    """Return the range in ``text``; ``AddressError`` if it is invalid, or too small for that many hosts."""
    addresses, _, router = text.strip().partition("@")
    addresses, _, bits = addresses.partition("/")
    first, dash, last = addresses.partition("-")
    try:
        pool = DhcpRange(ipaddress.ip_address(first.strip()), ipaddress.ip_address(last.strip()))
    except ValueError as exc:
        raise AddressError(
            f"invalid range {text!r}: expected FIRST-LAST, such as 10.0.0.50-10.0.0.229 ({exc})"
        ) from None
    if not dash or pool.first.version != pool.last.version or pool.size < 1:
        raise AddressError(f"invalid range {text!r}: two addresses of one family in ascending order expected")
    if pool.size < hosts:
        raise AddressError(f"range {text!r} is too small: {pool.size} addresses for {hosts} boot hosts")
    return msgspec.structs.replace(pool, bits=_bits(text, bits, pool), router=_router(text, router))


def parse_all(texts: Sequence[str], *, hosts: int) -> tuple[DhcpRange, ...]:
    """Return all ranges; ``AddressError`` if one is invalid, or if two overlap."""
    parsed = tuple(parse(text, hosts=hosts) for text in texts)
    for index, pool in enumerate(parsed):
        for later_pool in parsed[index + 1 :]:
            if overlap(pool, later_pool):
                raise AddressError(f"the ranges {pool} and {later_pool} overlap")
    return parsed


def overlap(pool: DhcpRange, second_pool: DhcpRange) -> bool:
    """Whether they have an address in common."""
    return (
        pool.version == second_pool.version
        and int(pool.first) <= int(second_pool.last)
        and int(second_pool.first) <= int(pool.last)
    )


def _bits(text: str, bits: str, pool: DhcpRange) -> int | None:
    if not bits:
        return _PREFIX_BITS if pool.version == 6 else None
    width = pool.first.max_prefixlen
    if not bits.isdigit() or not 1 <= int(bits) <= width:
        raise AddressError(f"invalid range {text!r}: the prefix length after '/' must be from 1 to {width}")
    shift = width - int(bits)
    if int(pool.first) >> shift != int(pool.last) >> shift:
        raise AddressError(f"invalid range {text!r}: the addresses are not in one /{bits} network")
    return int(bits)


def _router(text: str, router: str) -> str:
    try:
        return str(ipaddress.ip_address(router.strip())) if router.strip() else ""
    except ValueError:
        raise AddressError(f"invalid range {text!r}: expected the router's address after '@'") from None


# The boot hosts' addresses, for URLs that lead a machine back to the host that answered it.
#
# With DHCPv6 the boot file is a URL (RFC 5970), and dnsmasq cannot insert its own address there. So the addresses of
# all hosts are configured on all hosts. An item is ``HOST ADDRESS``, or ``HOST ADDRESS ADDRESS`` for both families.
#
# ``{host}`` in ``[boot] http_url`` is replaced by the host's address: only the host whose filter is open answers, over
# HTTP too, so a machine must load from the host that gave it its address.

_EXAMPLES: Final = {4: "10.0.0.1", 6: "fd00::1"}


def own(settings: BootSettings, host: str) -> Mapping[int, Address]:
    """Return the host's addresses by family, 4 and 6; ``AddressError`` if a host lacks a required address.

    ``AddressError`` if a range is invalid.
    """
    _check_url(settings.http_url)
    addresses_by_host = _parse_all(settings.addresses, settings.hosts)
    ranges = parse_all(settings.ranges, hosts=len(settings.hosts))
    for version, why in _needed_options(settings, versions_of(settings, ranges)):
        lacking = [name for name in settings.hosts if version not in addresses_by_host.get(name, {})]
        if lacking:
            example = ", ".join(f"{name} {_EXAMPLES[version]}{n}" for n, name in enumerate(settings.hosts, start=1))
            raise AddressError(
                f"[boot] addresses has no IPv{version} address of {', '.join(lacking)}, but {why}; "
                f"set one for each host, for example: addresses = {example}"
            )
    for name, addresses in addresses_by_host.items():
        for address in addresses.values():
            containing = next((str(pool) for pool in ranges if address in pool), None)
            if containing is not None:
                raise AddressError(
                    f"[boot] addresses: {address} of {name} is in the range {containing} and could be "
                    "assigned to a machine; exclude it from [boot] ranges"
                )
    return addresses_by_host.get(host, {})


def versions_of(settings: BootSettings, ranges: Collection[DhcpRange]) -> frozenset[int]:
    """Return the families of the addresses that machines get; ``AddressError``."""
    proxied = {4} if proxied_networks(settings) else set()
    assigned = {pool.version for pool in ranges}
    if proxied & assigned:
        raise AddressError(
            "[boot] ranges has IPv4 addresses, and proxied_networks is set: either dnsmasq assigns IPv4 addresses, or "
            "another DHCP server does; remove one of them"
        )
    return frozenset(proxied | assigned)


def literal(address: Address) -> str:
    """Return the address in URL syntax."""
    return f"[{address}]" if address.version == 6 else str(address)


def _parse_all(texts: Sequence[str], hosts: Collection[str]) -> dict[str, dict[int, Address]]:
    """Return the hosts' addresses; ``AddressError`` if one is invalid or used twice."""
    addresses_by_host: dict[str, dict[int, Address]] = {}
    owners: dict[Address, str] = {}
    for text in texts:
        name, *words = text.split() or [""]
        if name not in hosts:
            raise AddressError(
                f"[boot] addresses: {text!r} does not begin with one of [boot] hosts: {', '.join(hosts)}"
            )
        for word in words:
            address = _parse(text, word)
            if address.version in addresses_by_host.setdefault(name, {}):
                raise AddressError(f"[boot] addresses: {name} has two IPv{address.version} addresses; remove one")
            if owners.setdefault(address, name) != name:
                raise AddressError(f"[boot] addresses: {address} is used by both {owners[address]} and {name}")
            addresses_by_host[name][address.version] = address
    return addresses_by_host


def _needed_options(settings: BootSettings, versions: Collection[int]) -> Iterator[tuple[int, str]]:
    if 6 in versions:
        yield 6, "[boot] ranges has IPv6 addresses, and over IPv6 machines load from a URL with the host's address"
    if settings.proxied_networks:
        yield (
            4,
            "[boot] proxied_networks is set: machines get this address and the other DHCP server's",
        )
    if HOST in settings.http_url:
        for version in sorted(versions):
            yield version, f"[boot] http_url contains {HOST}, which is replaced by the host's address"


def _check_url(url: str) -> None:
    if not url:
        return
    example = f"http://{HOST}:8080/ or http://10.0.0.2/boot/"
    plain = url.replace(HOST, "host")
    try:
        parts = urlsplit(plain)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise AddressError(f"invalid URL {url!r} in [boot] http_url: expected, for example, {example}")
    odd = next((sign for sign in plain if sign.isspace() or sign in "{}$,\"'#"), None)
    if odd is not None:
        raise AddressError(
            f"invalid URL {url!r} in [boot] http_url: {odd!r} is not allowed; expected, for example, {example}"
        )


def _parse(text: str, word: str) -> Address:
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        raise AddressError(
            f"[boot] addresses: invalid address {word!r} in {text!r}; expected, such as 10.0.0.11"
        ) from None
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise AddressError(f"[boot] addresses: {word} in {text!r} cannot be used in a URL")
    return address


# Which boot host this one is.


def own_name(hosts: Collection[str]) -> str:
    """Return this host's name as in ``hosts``, with or without domain; its full name if it is not listed."""
    name = socket.gethostname()
    short = name.partition(".")[0]
    return short if short in hosts and name not in hosts else name


def proxied_networks(settings: BootSettings) -> tuple[ipaddress.IPv4Network, ...]:
    """Return the networks in which another server assigns addresses; ``AddressError``."""
    parsed = []
    for text in settings.proxied_networks:
        try:
            parsed.append(ipaddress.IPv4Network(text.strip()))
        except ValueError as exc:
            raise AddressError(
                f"[boot] proxied_networks: invalid network {text!r} ({exc}); expected, for example, 10.0.0.0/24"
            ) from None
    return tuple(parsed)


def pools(settings: BootSettings, host: str) -> tuple[DhcpRange, ...]:
    """Return this host's ranges; ``AddressError``."""
    if host not in settings.hosts:
        host_names = ", ".join(settings.hosts) or "nobody"
        raise AddressError(f"{host} is not a boot host; [boot] hosts has {host_names}")
    count = len(settings.hosts)
    return tuple(pool.part(settings.hosts.index(host), count) for pool in parse_all(settings.ranges, hosts=count))
