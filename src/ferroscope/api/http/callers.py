"""Where calls come from, and how often one source may fail.

Ramdisks call without credentials, so guessing is bounded by source address: behind a proxy that is trusted it is
the address that the proxy saw, in every other case the connection's. One of these serves all threads of a process;
times are those of the host's monotonic clock.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ferroscope.config.options import ApiSettings

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Sources that are remembered; the one that failed longest ago is forgotten first.
_REMEMBERED: Final = 20_000
# Whoever has one IPv6 address has a /64.
_IPV6_PREFIX: Final = 64
_LONGEST: Final = 64


def parse(text: str) -> Address | None:
    """Return the address that ``text`` is, an IPv4 one where it is mapped into IPv6; None where it is none."""
    if len(text) > _LONGEST:
        return None
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks; ``ValueError`` names the first one that is none."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def group(source: str) -> str:
    """Return whom a limit counts as one: the address, of IPv6 its /64."""
    address = parse(source)
    if not isinstance(address, ipaddress.IPv6Address):
        return source if address is None else str(address)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


class Trusted:
    """Proxies whose X-Forwarded-For is believed; by default nobody's is."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._networks = networks(texts)

    def __contains__(self, source: str) -> bool:
        if not self._networks:
            return False
        address = parse(source)
        return address is not None and any(address in network for network in self._networks)


class Callers:
    """Tells the source of each call, and keeps a token bucket of failures for each source."""

    def __init__(self, settings: ApiSettings | None = None) -> None:
        settings = settings or ApiSettings()
        self._trusted = Trusted(settings.trusted_proxies)
        self._rate, self._burst = settings.failure_rate, float(settings.failure_burst)
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def source(self, env: Mapping[str, Any]) -> str:
        """Return the caller's address: the last one in X-Forwarded-For that no trusted proxy has; "" where unknown."""
        peer = str(env.get("REMOTE_ADDR", ""))
        if peer not in self._trusted:
            address = parse(peer)
            return "" if address is None else str(address)
        source = peer
        for text in reversed(str(env.get("HTTP_X_FORWARDED_FOR", "")).split(",")):
            address = parse(text)
            if address is None:
                break
            source = str(address)
            if source not in self._trusted:
                break
        return source

    def wait(self, source: str, now: float) -> int:
        """Return for how many seconds this source has to wait before it may try again; 0: it may now."""
        if not self._rate or not source:
            return 0
        with self._lock:
            tokens = self._tokens(group(source), now)
        return 0 if tokens >= 1.0 else math.ceil((1.0 - tokens) / self._rate)

    def failed(self, source: str, now: float) -> int:
        """Count a failure; return for how many seconds the source had to wait before it, 0 if this one was free."""
        if not self._rate or not source:
            return 0
        key = group(source)
        with self._lock:
            tokens = self._tokens(key, now)
            free = tokens >= 1.0
            self._buckets[key] = (tokens - 1.0 if free else tokens, now)
            self._buckets.move_to_end(key)
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return 0 if free else math.ceil((1.0 - tokens) / self._rate)

    def _tokens(self, key: str, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._rate)
