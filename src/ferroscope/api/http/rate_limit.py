"""Limits on anonymous callers: where a call comes from, how often one source may fail, and how much may be logged.

Ramdisks call without credentials, so guessing is limited by source address: behind a trusted proxy that is
the address that the proxy reports, otherwise the connection's. One instance of each class serves all threads of a
process; times are those of the host's monotonic clock.
"""

from __future__ import annotations

import ipaddress
import math
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from ferroscope.api.http.errors import TooManyError
from ferroscope.config.options import ApiSettings
from ferroscope.contracts.queue import Clock
from ferroscope.core.lookup import Refused

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Keys that are remembered; the one that was used longest ago is dropped first.
_REMEMBERED: Final = 20_000
# One subscriber usually has a whole IPv6 /64.
_IPV6_PREFIX: Final = 64
_LONGEST: Final = 64


@lru_cache(maxsize=1024)
def parse(text: str) -> Address | None:
    """Return the IP address in ``text``, as IPv4 if it is an IPv4-mapped one; None if it is not an address."""
    if len(text) > _LONGEST:
        return None
    try:
        address = ipaddress.ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Return the networks; ``ValueError`` names the first invalid one."""
    return tuple(ipaddress.ip_network(text) for text in texts)


def group(source: str) -> str:
    """Return the key under which limits count a source: the address, or the /64 of an IPv6 address."""
    address = parse(source)
    if not isinstance(address, ipaddress.IPv6Address):
        return source if address is None else str(address)
    return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))


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
            address = parse(text)
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


FLOOD: Final = 10
"""So many times its limit of failures a source may have before it is not even answered about what is waited for."""


class Buckets:
    """Token buckets: for each key ``burst`` tokens, of which ``rate`` come back per second; no limit if that is 0."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate, self._burst = rate, float(burst)
        self._lock = threading.Lock()
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait(self, key: Hashable, now: float) -> int:
        """Return the seconds until there is a token; 0: there is one."""
        if not self._rate:
            return 0
        with self._lock:
            tokens = self._tokens(key, now)
        return 0 if tokens >= 1.0 else math.ceil((1.0 - tokens) / self._rate)

    def take(self, key: Hashable, now: float) -> int:
        """Take a token; return the seconds until there is one, 0 if there was."""
        if not self._rate:
            return 0
        with self._lock:
            tokens = self._tokens(key, now)
            free = tokens >= 1.0
            self._buckets[key] = (tokens - 1.0 if free else tokens, now)
            self._buckets.move_to_end(key)
            if len(self._buckets) > _REMEMBERED:
                self._buckets.popitem(last=False)
        return 0 if free else math.ceil((1.0 - tokens) / self._rate)

    def _tokens(self, key: Hashable, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._rate)


class Callers:
    """Determines the source of each call, and keeps a token bucket of failures for each source."""

    def __init__(self, settings: ApiSettings | None = None) -> None:
        settings = settings or ApiSettings()
        self._trusted = TrustedProxies(settings.trusted_proxies)
        rate, burst = settings.failure_rate, settings.failure_burst
        self._failures = Buckets(rate, burst)
        self._floods = Buckets(rate * FLOOD, burst * FLOOD)

    def source(self, env: Mapping[str, Any]) -> str:
        """Return the caller's address: the last one in X-Forwarded-For that is not a trusted proxy; "" if unknown."""
        return self._trusted.source(env)

    def forwarded_host(self, env: Mapping[str, Any]) -> str:
        """Return the host name under which a trusted proxy was called, "" if there is none or it does not say."""
        return self._trusted.host(env)

    def wait(self, source: str, now: float) -> int:
        """Return the seconds that this source has to wait before its next attempt; 0: none."""
        return self._failures.wait(group(source), now) if source else 0

    def failed(self, source: str, now: float) -> int:
        """Count a failure; return the seconds that the source should have waited before it, 0 if within the limit."""
        if not source:
            return 0
        self._floods.take(group(source), now)
        return self._failures.take(group(source), now)

    def wait_for_any(self, source: str, now: float) -> int:
        """Return the seconds that this source has to wait even if it asks for a machine that is waited for; 0: none."""
        return self._floods.wait(group(source), now) if source else 0


class QuietLog:
    """Allows ``burst`` log lines in ``period`` seconds; the next line after that says how many were suppressed."""

    def __init__(self, burst: int = 100, period: float = 10.0) -> None:
        self._burst = burst
        self._period = period
        self._lock = threading.Lock()
        self._began = float("-inf")
        self._lines = 0
        self._left_out = 0

    def admit(self, now: float) -> int | None:
        """Return how many lines were suppressed before this one; None if this one must be suppressed too."""
        with self._lock:
            if now - self._began >= self._period:
                self._began, self._lines = now, 0
            if self._lines >= self._burst:
                self._left_out += 1
                return None
            self._lines += 1
            left_out, self._left_out = self._left_out, 0
            return left_out


class RefusalCache:
    """Caches that a limit is reached, so that a flood of calls does not query the store each time."""

    def __init__(self) -> None:
        self._cached: tuple[float, Refused] | None = None

    def get(self, now: float) -> Refused | None:
        """Return the cached refusal, None if there is none or it has expired."""
        cached = self._cached
        return cached[1] if cached is not None and now < cached[0] else None

    def put(self, refusal: Refused, until: float) -> None:
        """Refuse all calls until ``until``."""
        self._cached = (until, refusal)


class PerMinute:
    """Counts calls by source within the current minute."""

    def __init__(self, remembered: int = 20_000) -> None:
        self._lock = threading.Lock()
        self._remembered = remembered
        self._minute = 0
        self._made: dict[str, int] = {}

    def made(self, source: str, minute: int) -> int:
        """Count one more call; return this source's total in this minute. Sources beyond ``remembered`` count as 1."""
        with self._lock:
            if minute != self._minute:
                self._minute, self._made = minute, {}
            if source not in self._made and len(self._made) >= self._remembered:
                return 1
            self._made[source] = self._made.get(source, 0) + 1
            return self._made[source]


class Admission:
    """How many requests a caller may make. One instance serves all threads of a process."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._rate = settings.request_rate
        self._requests = Buckets(settings.request_rate, settings.request_burst)
        self._at_once = settings.max_concurrent_requests
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}

    @contextmanager
    def admit(self, caller: str) -> Iterator[None]:
        """Count a call of ``caller`` while it runs; ``TooManyError`` if there are too many. "" counts for nobody."""
        if not caller or not (self._rate or self._at_once):
            yield
            return
        with self._lock:
            running = self._running.get(caller, 0)
            if self._at_once and running >= self._at_once:
                raise _too_many(f"at most {self._at_once} requests at once ([api] max_concurrent_requests)", 1)
            if self._rate and (wait := self._requests.take(caller, self._clock.monotonic())):
                raise _too_many(f"at most {self._rate:g} requests per second ([api] request_rate)", wait)
            self._running[caller] = running + 1
        try:
            yield
        finally:
            with self._lock:
                self._running[caller] -= 1
                if not self._running[caller]:
                    del self._running[caller]


def _too_many(limit: str, seconds: int) -> TooManyError:
    return TooManyError(f"Too many requests: {limit}; try again later.", {"Retry-After": str(seconds)})
