"""Address ranges, and each boot host's own part of them: disjoint, so that a fail-over never gives one address twice.

A range is written ``FIRST-LAST`` (or ``FIRST-LAST/BITS`` behind a relay, with ``@ROUTER`` at its end). All hosts
have the same list of hosts and of ranges, and by its place in the list each finds its part without asking anybody.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

import msgspec

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
