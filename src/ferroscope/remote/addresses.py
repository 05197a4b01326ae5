"""Addresses that a worker must not connect to for a caller of the API, unless the operator lists their network. Pure.

An address may hide another one: IPv6 has several ways to embed an IPv4 address, which a gateway, a tunnel or the kernel
extracts. A name may be a number in any base. Both are checked. A host name is checked when a worker connects to it, by
the addresses that it has then. Sources: the special-purpose address registries of IANA (RFC 6890),
RFC 6052 (NAT64), RFC 3056 (6to4), RFC 4380 (Teredo), and the documentation of the cloud providers.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.reasons import Reason

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Loopback, link-local, multicast and unspecified addresses, and those at which clouds serve a virtual machine its
# credentials; most clouds use link-local ones.
_SPECIAL: Final[tuple[Network, ...]] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "::/127", "fe80::/10", "fec0::/10", "ff00::/8",
        "100.100.100.200/32", "168.63.129.16/32", "fd00:ec2::/64", "fd20:ce::254/128",
    )
)  # fmt: skip
_LOOPBACK: Final[tuple[Network, ...]] = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
# Networks whose last 32 bits are an IPv4 address: mapped, translated, compatible, and NAT64's prefixes.
_EMBEDDING: Final = tuple(
    ipaddress.IPv6Network(text)
    for text in ("::ffff:0:0/96", "::ffff:0:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
# The prefix of a site may be a /48, too: then the octets around the eighth one are the IPv4 address.
_SPLIT: Final = ipaddress.IPv6Network("64:ff9b:1::/48")


@lru_cache(maxsize=4096)  # the same BMCs are checked again and again
def literal(host: str) -> Address | None:
    """Return the address in any spelling that a resolver accepts; None for a name."""
    plain = host.strip("[]").partition("%")[0]
    try:
        return ipaddress.ip_address(plain)
    except ValueError:
        pass
    try:  # 2130706433, 0x7f.1, 0177.0.0.1
        return ipaddress.IPv4Address(socket.inet_aton(plain)) if plain[:1].isdigit() and " " not in plain else None
    except (OSError, UnicodeError):
        return None


def meanings(address: Address) -> Iterator[Address]:
    """Yield the address and the IPv4 addresses that it embeds."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _EMBEDDING) and int(address) > 1:
            yield ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if address in _SPLIT:
            yield ipaddress.IPv4Address((int(address) >> 64 & 0xFFFF) << 16 | int(address) >> 40 & 0xFFFF)
        if address.sixtofour is not None:
            yield address.sixtofour
        if address.teredo is not None:
            yield from address.teredo


class Networks:
    """Networks that connections are limited to. ``ValueError`` for an invalid one.

    None means all networks; with ``guarded``, all except special ones and, unless ``loopback``, this host.
    """

    def __init__(self, texts: Iterable[str] = (), *, guarded: bool = False, loopback: bool = False) -> None:
        self._networks = tuple(ipaddress.ip_network(text) for text in texts)
        self._guarded = guarded
        self._loopback = loopback
        # Whether some address is outside of these networks, and whether one is inside.
        self.is_limited = bool(self._networks) or guarded
        self.permits = lru_cache(maxsize=4096)(self._decide)

    def __contains__(self, address: str) -> bool:
        return self.permits(address)

    def _decide(self, address: str) -> bool:
        if not self.is_limited:
            return True
        parsed = literal(address)
        if parsed is None:
            return False
        own, *embedded = meanings(parsed)
        if self._networks:
            plain = getattr(own, "ipv4_mapped", None) or own
            return self._is_listed(plain) and all(
                self._is_listed(hidden) or not is_special(hidden) for hidden in embedded
            )
        return not any(self._is_refused(hidden) for hidden in (own, *embedded))

    def with_loopback(self) -> Networks:
        """Return these networks, and this host if no networks are listed."""
        return Networks(map(str, self._networks), guarded=self._guarded, loopback=True)

    def _is_listed(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _is_refused(self, address: Address) -> bool:
        return is_special(address) and not (self._loopback and any(address in network for network in _LOOPBACK))


def is_special(address: Address) -> bool:
    """Return whether a BMC cannot have this address, or a cloud's own service has it."""
    return any(address in network for network in _SPECIAL)


def hides_special(host: str) -> bool:
    """Return whether the text is, or embeds, a special address."""
    parsed = literal(host)
    return parsed is not None and any(map(is_special, meanings(parsed)))


ANYWHERE: Final = Networks()


def check_bmc(host: str, networks: Networks) -> None:
    """Reject an address outside of the allowed networks; a host name is checked when it is connected to."""
    if literal(host) is not None and host not in networks:
        raise not_allowed(host)


def not_allowed(host: str) -> BmcError:
    """Return the error (permanent) for a BMC outside of the allowed networks."""
    if hides_special(host):
        why = "is an address of this host, of its link, of a group or of a cloud, and not in [drivers] bmc_networks"
    elif literal(host) is None:
        why = "has no address that [drivers] bmc_networks allows"
    else:
        why = "is not in any of the networks in [drivers] bmc_networks"
    message = f"BMC {host[:255]} {why}"
    return BmcError(message, transient=False, reason=Reason.BMC_NOT_ALLOWED)
