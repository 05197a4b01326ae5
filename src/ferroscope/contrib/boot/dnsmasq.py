"""A boot host's dnsmasq configuration. Source: dnsmasq(8); client architectures: RFC 4578 and IANA's registry.

It assigns addresses from this host's share of every range, and boots machines: firmware gets iPXE, iPXE gets the
script. It contains no MACs; the PXE filter decides which machines reach dnsmasq.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import BootSettings, PxeFilterSettings
from ferroscope.contrib.boot import proxy_dhcp
from ferroscope.node_boot import HOST, base_url

# Address ranges, and each boot host's share of them. Shares are disjoint, so that no address is assigned twice after a
# failover.
#
# A range is written ``FIRST-LAST`` (or ``FIRST-LAST/BITS`` behind a relay, with ``@ROUTER`` at the end). All hosts have
# the same lists of hosts and ranges, so each derives its share from its position without communication.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX_BITS: Final = 64
# DHCP leases last for the download of the ramdisk, and some retries; renewals keep the address of a running ramdisk.
LEASE_SECONDS: Final = 600
# The iPXE script in [boot] tftp_root, which 'ferroscope pxe config' writes.
SCRIPT_NAME: Final = "boot.ipxe"


class PoolError(ValueError):
    """An invalid range; the message says which, why, and what is expected."""


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
    """Return the range in ``text``; ``PoolError`` if it is invalid, or too small for that many hosts."""
    addresses, _, router = text.strip().partition("@")
    addresses, _, bits = addresses.partition("/")
    first, dash, last = addresses.partition("-")
    try:
        pool = DhcpRange(ipaddress.ip_address(first.strip()), ipaddress.ip_address(last.strip()))
    except ValueError as exc:
        raise PoolError(f"invalid range {text!r}: expected FIRST-LAST, such as 10.0.0.50-10.0.0.229 ({exc})") from None
    if not dash or pool.first.version != pool.last.version or pool.size < 1:
        raise PoolError(f"invalid range {text!r}: two addresses of one family in ascending order expected")
    if pool.size < hosts:
        raise PoolError(f"range {text!r} is too small: {pool.size} addresses for {hosts} boot hosts")
    return msgspec.structs.replace(pool, bits=_bits(text, bits, pool), router=_router(text, router))


def parse_all(texts: Sequence[str], *, hosts: int) -> tuple[DhcpRange, ...]:
    """Return all ranges; ``PoolError`` if one is invalid, or if two overlap."""
    parsed = tuple(parse(text, hosts=hosts) for text in texts)
    for index, pool in enumerate(parsed):
        for later_pool in parsed[index + 1 :]:
            if overlap(pool, later_pool):
                raise PoolError(f"the ranges {pool} and {later_pool} overlap")
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
        raise PoolError(f"invalid range {text!r}: the prefix length after '/' must be from 1 to {width}")
    shift = width - int(bits)
    if int(pool.first) >> shift != int(pool.last) >> shift:
        raise PoolError(f"invalid range {text!r}: the addresses are not in one /{bits} network")
    return int(bits)


def _router(text: str, router: str) -> str:
    try:
        return str(ipaddress.ip_address(router.strip())) if router.strip() else ""
    except ValueError:
        raise PoolError(f"invalid range {text!r}: expected the router's address after '@'") from None


# The boot hosts' addresses, for URLs that lead a machine back to the host that answered it.
#
# With DHCPv6 the boot file is a URL (RFC 5970), and dnsmasq cannot insert its own address there. So the addresses of
# all hosts are configured on all hosts. An item is ``HOST ADDRESS``, or ``HOST ADDRESS ADDRESS`` for both families.
#
# ``{host}`` in ``[boot] http_url`` is replaced by the host's address: only the host whose filter is open answers, over
# HTTP too, so a machine must load from the host that gave it its address.

_EXAMPLES: Final = {4: "10.0.0.1", 6: "fd00::1"}


class AddressError(ValueError):
    """A missing or invalid address; the message says which, why, and what is expected."""


def own(settings: BootSettings, host: str) -> Mapping[int, Address]:
    """Return the host's addresses by family, 4 and 6; ``AddressError`` if a host lacks a required address.

    ``PoolError`` if a range is invalid.
    """
    _check_url(settings.http_url)
    addresses_by_host = _parse_all(settings.addresses, settings.hosts)
    ranges = parse_all(settings.ranges, hosts=len(settings.hosts))
    for version, why in _needed_options(settings, _versions(settings, ranges)):
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


def _versions(settings: BootSettings, ranges: Collection[DhcpRange]) -> frozenset[int]:
    """Return the families of the addresses that machines get; ``PoolError``, ``ProxyError``."""
    proxied = {4} if proxy_dhcp.networks(settings) else set()
    assigned = {pool.version for pool in ranges}
    if proxied & assigned:
        raise PoolError(
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


# Client architecture -> dnsmasq tag.
_ARCHITECTURES: Final = {
    "0": "bios",
    "6": "ia32",
    "7": "x64",
    "9": "x64",
    "11": "arm64",
    "16": "http",
    "19": "http-arm64",
}
# What UEFI HTTP boot expects in a DHCPv6 answer: option 16 (RFC 8415), an enterprise number of four bytes, a length of
# two, and HTTPClient, which is all that EDK II checks. dnsmasq 2.90 encodes a list of strings, each with its length in
# front: so a first string of two letters and its length form the number (0x24653, which is unassigned).
_HTTP_CLIENT: Final = "FS,HTTPClient"


class HostError(ValueError):
    """The host is not in ``[boot] hosts``; the message lists those."""


def pools(settings: BootSettings, host: str) -> tuple[DhcpRange, ...]:
    """Return this host's ranges; ``HostError``, ``PoolError``."""
    if host not in settings.hosts:
        host_names = ", ".join(settings.hosts) or "nobody"
        raise HostError(f"{host} is not a boot host; [boot] hosts has {host_names}")
    count = len(settings.hosts)
    return tuple(pool.part(settings.hosts.index(host), count) for pool in parse_all(settings.ranges, hosts=count))


def configuration(settings: BootSettings, pxe_filter: PxeFilterSettings, host: str) -> str:
    """Return the file; ``HostError``, ``PoolError``, ``AddressError``. ``pxe_filter``: the filter in front of
    dnsmasq."""
    return "\n".join(_lines(settings, pxe_filter, host)) + "\n"


def _lines(settings: BootSettings, pxe_filter: PxeFilterSettings, host: str) -> Iterator[str]:
    mine = pools(settings, host)
    place = f"{settings.hosts.index(host) + 1} of {len(settings.hosts)}"
    yield f"# dnsmasq of {host}, boot host {place}. Generated by: ferroscope pxe config --host {host}"
    yield "# Do not edit: change [boot] in Ferroscope's configuration, which is the same on all boot hosts."
    yield from ("", "# DHCP and TFTP on the boot network; no DNS.", "port=0")
    yield from (f"interface={interface}" for interface in pxe_filter.interfaces)
    yield from ("except-interface=lo", "bind-dynamic", "")
    yield from _pxe_filter(pxe_filter)
    yield from _addresses(settings, mine)
    yield from _time(settings, mine)
    yield from proxy_dhcp.lines(settings, dict(_loaders(settings)))
    if any(pool.version == 6 for pool in mine):
        yield from ("# Router advertisements: machines use DHCPv6, and learn the link's prefix.", "enable-ra")
        yield "# They are not filtered. A lifetime of 0 seconds: this host is not a default router."
        yield from (f"ra-param={interface},60,0" for interface in pxe_filter.interfaces)
    yield from _boot(settings, _versions(settings, mine), own(settings, host))
    yield from ("", "# Boot files. TFTP transfers use separate ports, so a running transfer continues")
    yield from ("# after the filter closes.", "enable-tftp", f"tftp-root={settings.tftp_root}")
    if settings.dnsmasq_options:
        yield from ("", "# [boot] dnsmasq_options", *settings.dnsmasq_options)


def _pxe_filter(pxe_filter: PxeFilterSettings) -> Iterator[str]:
    if pxe_filter.dnsmasq_pid_file:
        yield f"pid-file={pxe_filter.dnsmasq_pid_file}"
    if pxe_filter.dhcp_hostsdir and "dnsmasq" in pxe_filter.backends:
        yield from (
            "# The PXE filter's dnsmasq backend writes ignored hosts here.",
            f"dhcp-hostsdir={pxe_filter.dhcp_hostsdir}",
        )


def _addresses(settings: BootSettings, mine: tuple[DhcpRange, ...]) -> Iterator[str]:
    if not mine:
        return
    yield "# This host's share of every range; no other boot host assigns these addresses."
    if settings.address_order == "sequential":
        yield "dhcp-sequential-ip"
    yield "# Without this, an answer may be seconds late, when another host's filter is already open."
    yield "no-ping"
    lease = f"{LEASE_SECONDS}s"
    for number, pool in enumerate(mine, start=1):
        tag = f"range{number}"
        if pool.version == 6:
            yield f"dhcp-range=set:{tag},{pool.first},{pool.last},{pool.bits},{lease}"
            continue
        yield f"dhcp-range=set:{tag},{pool.first},{pool.last}{',' if pool.netmask else ''}{pool.netmask},{lease}"
        # An empty value: no default route; without the option dnsmasq announces itself.
        yield f"dhcp-option=tag:{tag},option:router{',' if pool.router else ''}{pool.router}"


# What may precede the option in a line.
_BEFORE: Final = ("tag:", "encap:", "vi-encap:", "vendor:")
# By family: the names of the time server option, ours first, and the address that stands for this host.
_TIME: Final = {
    4: (("option:ntp-server", "42"), "0.0.0.0"),  # noqa: S104  # a word of dnsmasq's
    6: (("option6:sntp-server", "option6:31", "option6:ntp-server", "option6:56"), "[::]"),
}


def added_options(settings: BootSettings) -> frozenset[str]:
    """Return the DHCP options that the operator's lines add."""
    options = set()
    for line in settings.dnsmasq_options:
        name, _, value = line.replace(" ", "").partition("=")
        if name in ("dhcp-option", "dhcp-option-force"):
            options.update([word for word in value.split(",") if not word.startswith(_BEFORE)][:1])
    return frozenset(options)


def offers_own_time(settings: BootSettings) -> bool:
    """Whether machines get the boot host as time server."""
    theirs = added_options(settings)
    return any(theirs.isdisjoint(_TIME[pool.version][0]) for pool in parse_all(settings.ranges, hosts=1))


def _time(settings: BootSettings, mine: tuple[DhcpRange, ...]) -> Iterator[str]:
    for version in sorted({pool.version for pool in mine}):
        names, host = _TIME[version]
        if added_options(settings).isdisjoint(names):
            yield "# This host tells the time: a machine whose clock is wrong trusts no certificate."
            yield f"dhcp-option={names[0]},{host}"


def _boot(settings: BootSettings, versions: Collection[int], mine: Mapping[int, Address]) -> Iterator[str]:
    yield from ("", "# The kind of client: iPXE, or the type of firmware.", "dhcp-match=set:ipxe,175")
    yield "dhcp-userclass=set:ipxe,iPXE"
    for number, tag in _ARCHITECTURES.items():
        if 4 in versions:
            yield f"dhcp-match=set:{tag},option:client-arch,{number}"
        if 6 in versions:
            yield f"dhcp-match=set:{tag},option6:61,{number}"
    if 4 in versions:
        yield from (
            "",
            "# iPXE gets the script, firmware gets iPXE.",
            *_boot4(settings, literal(mine[4]) if 4 in mine else ""),
        )
    if 6 in versions:
        yield from ("", "# The same over IPv6, as URLs.", *_boot6(settings, literal(mine[6])))


def _boot4(settings: BootSettings, host: str) -> Iterator[str]:
    base = base_url(settings, host)
    script = f"{base}/{SCRIPT_NAME}" if base else SCRIPT_NAME
    if settings.proxied_networks:  # UEFI gets its loader from ``proxy_dhcp.lines``
        yield f"dhcp-boot=tag:ipxe,{script},,{host}"
        yield f"dhcp-boot=tag:bios,tag:!ipxe,{settings.loader_bios},,{host}"
        return
    yield f"dhcp-boot=tag:ipxe,{script}"
    for tag, file in _loaders(settings):
        yield f"dhcp-boot=tag:{tag},tag:!ipxe,{file}"
    if base:
        for tag, file in _http_loaders(settings):
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option:vendor-class,HTTPClient"
            yield f"dhcp-boot=tag:{tag},tag:!ipxe,{base}/{file}"


def _boot6(settings: BootSettings, host: str) -> Iterator[str]:
    base, tftp = base_url(settings, host), f"tftp://{host}"
    yield f"dhcp-option=tag:ipxe,option6:bootfile-url,{base or tftp}/{SCRIPT_NAME}"
    for tag, file in _loaders(settings):
        if tag != "bios":
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option6:bootfile-url,{tftp}/{file}"
    if base:
        for tag, file in _http_loaders(settings):
            yield f"dhcp-option-force=tag:{tag},tag:!ipxe,option6:16,{_HTTP_CLIENT}"
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option6:bootfile-url,{base}/{file}"


def _loaders(settings: BootSettings) -> Iterator[tuple[str, str]]:
    yield "bios", settings.loader_bios
    yield "x64", settings.loader_x64
    yield "arm64", settings.loader_arm64


def _http_loaders(settings: BootSettings) -> Iterator[tuple[str, str]]:
    yield "http", settings.loader_x64
    yield "http-arm64", settings.loader_arm64
