"""A boot host's dnsmasq configuration. Source: dnsmasq(8); architectures of clients: RFC 4578 and IANA's register.

It gives addresses from this host's own part of every range, and the way to boot: firmware gets iPXE, iPXE gets the
script. It holds no machine's MAC: whom dnsmasq may hear is the filter's matter.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec

from ferroscope.config.options import BootSettings, PxeFilterSettings

# Address ranges, and each boot host's own part of them: disjoint, so that a fail-over never gives one address twice.
#
# A range is written ``FIRST-LAST`` (or ``FIRST-LAST/BITS`` behind a relay, with ``@ROUTER`` at its end). All hosts
# have the same list of hosts and of ranges, and by its place in the list each finds its part without asking anybody.

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_PREFIX: Final = 64


class PoolError(ValueError):
    """A range that cannot be used; the message says which, why, and how one is written."""


class Range(msgspec.Struct, frozen=True):
    """Addresses from ``first`` to ``last``. ``bits``: of the network's prefix, None for the link's own; ``router``."""

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
        return address.version == self.version and self.first <= address <= self.last  # type: ignore[operator]

    @property
    def netmask(self) -> str:
        """The netmask that dnsmasq needs where the network is not one of its own links; empty otherwise."""
        return str(ipaddress.IPv4Network((0, self.bits)).netmask) if self.bits is not None else ""

    def part(self, number: int, count: int) -> Range:
        """Return the part of host ``number`` (from 0) of ``count``; the rest of the division stays unused."""
        share = self.size // count
        first = self.first + share * number
        return msgspec.structs.replace(self, first=first, last=first + (share - 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def parse(text: str, *, hosts: int) -> Range:
    """Return the range in ``text``; ``PoolError`` where it is none, or too small for so many hosts."""
    addresses, _, router = text.strip().partition("@")
    addresses, _, bits = addresses.partition("/")
    first, dash, last = addresses.partition("-")
    try:
        found = Range(ipaddress.ip_address(first.strip()), ipaddress.ip_address(last.strip()))
    except ValueError as exc:
        raise PoolError(f"{text!r} is no range of addresses, such as 10.0.0.50-10.0.0.229: {exc}") from None
    if not dash or found.first.version != found.last.version or found.size < 1:
        raise PoolError(f"{text!r}: the first address must be of the same kind as the last, and not behind it")
    if found.size < hosts:
        raise PoolError(f"{text!r} has {found.size} addresses, which is too few for {hosts} boot hosts")
    return msgspec.structs.replace(found, bits=_bits(text, bits, found), router=_router(text, router))


def parse_all(texts: Sequence[str], *, hosts: int) -> tuple[Range, ...]:
    """Return all ranges; ``PoolError`` where one is wrong, or two of them overlap."""
    found = tuple(parse(text, hosts=hosts) for text in texts)
    for index, one in enumerate(found):
        for other in found[index + 1 :]:
            if overlap(one, other):
                raise PoolError(f"the ranges {one} and {other} overlap")
    return found


def overlap(one: Range, other: Range) -> bool:
    """Whether an address is in both."""
    return one.version == other.version and one.first <= other.last and other.first <= one.last  # type: ignore[operator]


def _bits(text: str, bits: str, found: Range) -> int | None:
    if not bits:
        return _PREFIX if found.version == 6 else None
    width = found.first.max_prefixlen
    if not bits.isdigit() or not 1 <= int(bits) <= width:
        raise PoolError(f"{text!r}: the length of the prefix after '/' must be from 1 to {width}")
    shift = width - int(bits)
    if int(found.first) >> shift != int(found.last) >> shift:
        raise PoolError(f"{text!r}: first and last address are not in one network with a prefix of {bits} bits")
    return int(bits)


def _router(text: str, router: str) -> str:
    try:
        return str(ipaddress.ip_address(router.strip())) if router.strip() else ""
    except ValueError:
        raise PoolError(f"{text!r}: what follows '@' must be the router's address") from None


# Each boot host's own addresses: what stands in a URL that leads a machine back to the host that answered it.
#
# With DHCPv6 the boot file is a URL (RFC 5970), and dnsmasq does not put its address into a text; so the addresses
# are
# given, those of all hosts on all hosts. An item is ``HOST ADDRESS``, or ``HOST ADDRESS ADDRESS`` with both families.
#
# ``{host}`` in ``[boot] http_url`` stands for the host's own address: only the host whose filter is open answers, over
# HTTP
# too, so a machine has to load from the one that gave it its address.

HOST: Final = "{host}"

_EXAMPLES: Final = {4: "10.0.0.1", 6: "fd00::1"}


class AddressError(ValueError):
    """An address that is missing or cannot be used; the message says which, why, and how it is written."""


def own(settings: BootSettings, host: str) -> Mapping[int, Address]:
    """Return the host's addresses by family, 4 and 6; ``AddressError`` where any host lacks one that machines need.

    ``PoolError`` where a range is wrong.
    """
    _check_url(settings.http_url)
    found = _parse_all(settings.addresses, settings.hosts)
    ranges = parse_all(settings.ranges, hosts=len(settings.hosts))
    for version, why in _needed(settings, {one.version for one in ranges}):
        lacking = [name for name in settings.hosts if version not in found.get(name, {})]
        if lacking:
            example = ", ".join(f"{name} {_EXAMPLES[version]}{n}" for n, name in enumerate(settings.hosts, start=1))
            raise AddressError(
                f"[boot] addresses has no IPv{version} address of {', '.join(lacking)}, and {why}; "
                f"give each host's, such as: addresses = {example}"
            )
    for name, addresses in found.items():
        for address in addresses.values():
            given = next((str(one) for one in ranges if address in one), None)
            if given is not None:
                raise AddressError(
                    f"[boot] addresses: {name} has {address}, which is in the range {given}, "
                    "so that a machine could be given it; leave it out of [boot] ranges"
                )
    return found.get(host, {})


def literal(address: Address) -> str:
    """Return the address as a URL has it."""
    return f"[{address}]" if address.version == 6 else str(address)


def base_url(settings: BootSettings, host: str) -> str:
    """Return where a web server has the boot files, without a slash at the end; "" where TFTP serves all.

    ``host``: what a URL has for the boot host, where the web server is its own.
    """
    return settings.http_url.replace(HOST, host).rstrip("/")


def _parse_all(texts: Sequence[str], hosts: Collection[str]) -> dict[str, dict[int, Address]]:
    """Return the addresses of each host that has some; ``AddressError`` where one is wrong or is given twice."""
    found: dict[str, dict[int, Address]] = {}
    owners: dict[Address, str] = {}
    for text in texts:
        name, *words = text.split() or [""]
        if name not in hosts:
            raise AddressError(f"[boot] addresses: {text!r} begins with none of [boot] hosts ({', '.join(hosts)})")
        for word in words:
            address = _parse(text, word)
            if address.version in found.setdefault(name, {}):
                raise AddressError(f"[boot] addresses: {name} has two IPv{address.version} addresses; give one of them")
            if owners.setdefault(address, name) != name:
                raise AddressError(f"[boot] addresses: {address} is given to {owners[address]} and to {name}")
            found[name][address.version] = address
    return found


def _needed(settings: BootSettings, versions: Collection[int]) -> Iterator[tuple[int, str]]:
    if 6 in versions:
        yield 6, "[boot] ranges has IPv6 addresses: over IPv6 a machine loads from a URL, which has to name its host"
    if HOST in settings.http_url:
        for version in sorted(versions):
            yield version, f"[boot] http_url has {HOST} in it, where the host's address shall stand"


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
        raise AddressError(f"[boot] http_url is {url!r}, which is no URL such as {example}")
    odd = next((sign for sign in plain if sign.isspace() or sign in "{}$,\"'#"), None)
    if odd is not None:
        raise AddressError(f"[boot] http_url is {url!r}: {odd!r} cannot be in it; write it such as {example}")


def _parse(text: str, word: str) -> Address:
    try:
        address = ipaddress.ip_address(word)
    except ValueError:
        raise AddressError(f"[boot] addresses: in {text!r} {word!r} is no address, such as 10.0.0.11") from None
    if address.is_link_local or address.is_multicast or address.is_unspecified:
        raise AddressError(f"[boot] addresses: in {text!r} {word} is no address that a URL can lead to")
    return address


# Which of the boot hosts this one is.


def own_name(hosts: Collection[str]) -> str:
    """Return this host's name as ``hosts`` has it: with its domain, or without; with it where it is none of them."""
    name = socket.gethostname()
    short = name.partition(".")[0]
    return short if short in hosts and name not in hosts else name


# What a client says it is -> the tag of it.
_ARCHITECTURES: Final = {
    "0": "bios",
    "6": "ia32",
    "7": "x64",
    "9": "x64",
    "11": "arm64",
    "16": "http",
    "19": "http-arm64",
}
# What firmware that boots over HTTP looks for in a DHCPv6 answer. Option 16 (RFC 8415) is an enterprise number of four
# bytes, a length of two, and HTTPClient, which is all that EDK II reads. dnsmasq 2.90 makes a list of texts of it, each
# behind its length: so a first text of two letters and its length are the number (0x24653, which nobody has).
_HTTP_CLIENT: Final = "FS,HTTPClient"


class HostError(ValueError):
    """The host is none of ``[boot] hosts``; the message has those."""


def pools(settings: BootSettings, host: str) -> tuple[Range, ...]:
    """Return the ranges of this host alone; ``HostError``, ``PoolError``."""
    if host not in settings.hosts:
        known = ", ".join(settings.hosts) or "nobody"
        raise HostError(f"{host} is none of the boot hosts; [boot] hosts names {known}")
    count = len(settings.hosts)
    return tuple(one.part(settings.hosts.index(host), count) for one in parse_all(settings.ranges, hosts=count))


def configuration(settings: BootSettings, pxe_filter: PxeFilterSettings, host: str) -> str:
    """Return the whole file; ``HostError``, ``PoolError``, ``AddressError``. ``pxe_filter``: what stands before it."""
    return "\n".join(_lines(settings, pxe_filter, host)) + "\n"


def _lines(settings: BootSettings, pxe_filter: PxeFilterSettings, host: str) -> Iterator[str]:
    mine = pools(settings, host)
    place = f"{settings.hosts.index(host) + 1} of {len(settings.hosts)}"
    yield f"# dnsmasq of {host}, boot host {place}. Made by: ferroscope pxe config --host {host}"
    yield "# Changes belong into [boot] of Ferroscope's configuration, which is the same on all boot hosts."
    yield from ("", "# DHCP and TFTP on the boot network; no DNS.", "port=0")
    yield from (f"interface={interface}" for interface in pxe_filter.interfaces)
    yield from ("except-interface=lo", "bind-dynamic", "")
    yield from _pxe_filter(pxe_filter)
    yield from _addresses(settings, mine)
    if any(one.version == 6 for one in mine):
        yield from ("# Machines are told to ask with DHCPv6, and which prefix is on the link.", "enable-ra")
        yield "# No filter is in front of that. So this host is nobody's default router: a lifetime of 0 seconds."
        yield from (f"ra-param={interface},60,0" for interface in pxe_filter.interfaces)
    yield from _boot(settings, {one.version for one in mine}, own(settings, host))
    yield from ("", "# What a machine loads. Answers come from a port of their own, so a transfer that runs outlives")
    yield from ("# the filter's closing.", "enable-tftp", f"tftp-root={settings.tftp_root}")
    if settings.dnsmasq_options:
        yield from ("", "# [boot] dnsmasq_options", *settings.dnsmasq_options)


def _pxe_filter(pxe_filter: PxeFilterSettings) -> Iterator[str]:
    if pxe_filter.dnsmasq_pid_file:
        yield f"pid-file={pxe_filter.dnsmasq_pid_file}"
    if pxe_filter.dhcp_hostsdir and "dnsmasq" in pxe_filter.backends:
        yield from (
            "# The PXE filter's dnsmasq backend lists ignored hosts here.",
            f"dhcp-hostsdir={pxe_filter.dhcp_hostsdir}",
        )


def _addresses(settings: BootSettings, mine: tuple[Range, ...]) -> Iterator[str]:
    yield "# This host's own part of every range: no other boot host gives these addresses."
    if settings.address_order == "sequential":
        yield "dhcp-sequential-ip"
    yield "# Without it an answer may come seconds late, when another host's filter is open already."
    yield "no-ping"
    lease = f"{settings.lease_time}s"
    for number, one in enumerate(mine, start=1):
        tag = f"range{number}"
        if one.version == 6:
            yield f"dhcp-range=set:{tag},{one.first},{one.last},{one.bits},{lease}"
            continue
        yield f"dhcp-range=set:{tag},{one.first},{one.last}{',' if one.netmask else ''}{one.netmask},{lease}"
        # Empty: no route at all; otherwise dnsmasq names itself.
        yield f"dhcp-option=tag:{tag},option:router{',' if one.router else ''}{one.router}"


def _boot(settings: BootSettings, versions: Collection[int], mine: Mapping[int, Address]) -> Iterator[str]:
    yield from ("", "# Who asks: iPXE, or a firmware of which kind.", "dhcp-match=set:ipxe,175")
    yield "dhcp-userclass=set:ipxe,iPXE"
    for number, tag in _ARCHITECTURES.items():
        if 4 in versions:
            yield f"dhcp-match=set:{tag},option:client-arch,{number}"
        if 6 in versions:
            yield f"dhcp-match=set:{tag},option6:61,{number}"
    if 4 in versions:
        yield from (
            "",
            "# iPXE gets the script, a firmware gets iPXE.",
            *_boot4(settings, literal(mine[4]) if 4 in mine else ""),
        )
    if 6 in versions:
        yield from ("", "# The same over IPv6, as URLs.", *_boot6(settings, literal(mine[6])))


def _boot4(settings: BootSettings, host: str) -> Iterator[str]:
    base = base_url(settings, host)
    yield f"dhcp-boot=tag:ipxe,{base}/{settings.script}" if base else f"dhcp-boot=tag:ipxe,{settings.script}"
    for tag, file in _loaders(settings):
        yield f"dhcp-boot=tag:{tag},tag:!ipxe,{file}"
    if base:
        for tag, file in _http_loaders(settings):
            yield f"dhcp-option=tag:{tag},tag:!ipxe,option:vendor-class,HTTPClient"
            yield f"dhcp-boot=tag:{tag},tag:!ipxe,{base}/{file}"


def _boot6(settings: BootSettings, host: str) -> Iterator[str]:
    base, tftp = base_url(settings, host), f"tftp://{host}"
    yield f"dhcp-option=tag:ipxe,option6:bootfile-url,{base or tftp}/{settings.script}"
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
