"""Where a call comes from: the connection's address, or the one that a trusted proxy reports."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# One subscriber usually has a whole IPv6 /64.
IPV6_PREFIX: Final = 64
_MAX_ADDRESS_CHARACTERS: Final = 64
_PORT: Final = re.compile(r":\d{1,5}", re.ASCII)


@lru_cache(maxsize=1024)
def parse(text: str) -> Address | None:
    """Return the IP address in ``text``, as IPv4 if it is an IPv4-mapped one; None if it is not an address."""
    if len(text) > _MAX_ADDRESS_CHARACTERS:
        return None
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def parse_forwarded(text: str) -> Address | None:
    """Return an address from X-Forwarded-For. Some proxies add the port, and brackets around an IPv6 address."""
    text = text.strip()
    host, bracket, port = text.removeprefix("[").partition("]") if text.startswith("[") else text.partition(":")
    if bracket == "]":
        return parse(host) if not port or _PORT.fullmatch(port) else None
    return parse(host) if _PORT.fullmatch(f":{port}") and "." in host else parse(text)


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks; ``ValueError`` names the first invalid one."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def group(source: str) -> str:
    """Return the key under which limits count a source: the address, or the /64 of an IPv6 address."""
    address = parse(source)
    if not isinstance(address, ipaddress.IPv6Address):
        return source if address is None else str(address)
    return str(ipaddress.ip_network((address, IPV6_PREFIX), strict=False))


class TrustedProxies:
    """The proxies whose X-Forwarded-For is trusted; none by default."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._networks = networks(texts)

    def __contains__(self, source: str) -> bool:
        if not self._networks:
            return False
        address = parse(source)
        return address is not None and any(address in network for network in self._networks)

    def source(self, env: Mapping[str, Any]) -> str:
        """Return the caller's address: the last one in X-Forwarded-For that is not a trusted proxy; "" if unknown."""
        peer = str(env.get("REMOTE_ADDR", ""))
        if peer not in self:
            address = parse(peer)
            return "" if address is None else str(address)
        source = peer
        for text in reversed(str(env.get("HTTP_X_FORWARDED_FOR", "")).split(",")):
            address = parse_forwarded(text)
            if address is None:
                break
            source = str(address)
            if source not in self:
                break
        return source

    def host(self, env: Mapping[str, Any]) -> str:
        """Return the host name under which a trusted proxy was called, "" if there is none or it does not say."""
        if str(env.get("REMOTE_ADDR", "")) not in self:
            return ""
        return str(env.get("HTTP_X_FORWARDED_HOST", "")).rpartition(",")[2].strip()
