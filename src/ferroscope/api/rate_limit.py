"""Limits on anonymous callers: how often one source may fail, and how many calls may wait.

Ramdisks call without credentials, so guessing is limited by source address: behind a trusted proxy that is
the address that the proxy reports, otherwise the connection's. One instance of each class serves all threads of a
process; times are those of the host's monotonic clock.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from ferroscope.api.errors import TooManyError
from ferroscope.config.options import ApiSettings
from ferroscope.contracts.store import Clock
from ferroscope.core.lookup import LookupRefusal
from ferroscope_client.core.values import limit_key, many

# Keys that are remembered; the one that was used longest ago is dropped first.
_MAX_KEYS: Final = 20_000
# Requests that a source may make at once before [api] request_rate applies: some web pages, or one script.
REQUEST_BURST: Final = 200
# Failed calls that a source may make at once before [api] failure_rate applies: those of a rack of unknown machines, or
# of a program that retries.
FAILURE_BURST: Final = 100


# Callers are anonymous, and each MAC address may be a guess. This many of them count as one failed call. Most machines
# have fewer, even with virtual functions.
GUESSES_PER_FAILURE: Final = 128

FLOOD_FACTOR: Final = 10
"""A source with this many times its limit of failures gets no answer, not even about a machine that we wait for."""


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
            if len(self._buckets) > _MAX_KEYS:
                self._buckets.popitem(last=False)
        return 0 if free else math.ceil((1.0 - tokens) / self._rate)

    def _tokens(self, key: Hashable, now: float) -> float:
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + (now - at) * self._rate)


class Callers:
    """Keeps a token bucket of failures for each source."""

    def __init__(self, settings: ApiSettings | None = None, *, burst: int = FAILURE_BURST) -> None:
        settings = settings or ApiSettings()
        rate = settings.failure_rate
        self._failures = Buckets(rate, burst)
        self._floods = Buckets(rate * FLOOD_FACTOR, burst * FLOOD_FACTOR)

    def wait(self, source: str, now: float) -> int:
        """Return the seconds that this source has to wait before its next attempt; 0: none."""
        return self._failures.wait(limit_key(source), now) if source else 0

    def count_failure(self, source: str, now: float, guesses: int = 1) -> int:
        """Count a failure, several for many guesses; return the seconds that the source should have waited before it.

        0: it is within the limit.
        """
        if not source:
            return 0
        key, seconds = limit_key(source), 0
        for _ in range(math.ceil(guesses / GUESSES_PER_FAILURE)):
            self._floods.take(key, now)
            seconds = self._failures.take(key, now)
        return seconds

    def wait_for_any(self, source: str, now: float) -> int:
        """Return the seconds that this source has to wait even if it asks for a machine that we wait for; 0: none."""
        return self._floods.wait(limit_key(source), now) if source else 0


class RefusalCache:
    """Remembers that a limit is reached, so that a flood of calls does not query the store each time."""

    def __init__(self) -> None:
        self._cached: tuple[float, LookupRefusal] | None = None

    def get(self, now: float) -> LookupRefusal | None:
        """Return the cached refusal, None if there is none or it has expired."""
        cached = self._cached
        return cached[1] if cached is not None and now < cached[0] else None

    def put(self, refusal: LookupRefusal, until: float) -> None:
        """Refuse all calls until ``until``."""
        self._cached = (until, refusal)


class PerMinute:
    """Counts calls by source within the current minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minute = 0
        self._made: dict[str, int] = {}

    def count_call(self, source: str, minute: int) -> int:
        """Count one more call; return this source's total in this minute. Sources beyond a limit count as 1."""
        with self._lock:
            if minute != self._minute:
                self._minute, self._made = minute, {}
            if source not in self._made and len(self._made) >= _MAX_KEYS:
                return 1
            self._made[source] = self._made.get(source, 0) + 1
            return self._made[source]


class RateLimiter:
    """How many requests a caller may make. One instance serves all threads of a process.

    ``limited``: whether there is any limit.
    """

    def __init__(self, settings: ApiSettings, clock: Clock, *, burst: int = REQUEST_BURST) -> None:
        self.limited = bool(settings.request_rate or settings.max_concurrent_requests)
        self._rate = settings.request_rate
        self._requests = Buckets(settings.request_rate, burst)
        self._at_once = settings.max_concurrent_requests
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[str, int] = {}

    @contextmanager
    def admit(self, caller: str) -> Iterator[None]:
        """Count a call of ``caller`` while it runs; ``TooManyError`` if there are too many. "" counts for nobody."""
        if not caller or not self.limited:
            yield
            return
        with self._lock:
            running = self._running.get(caller, 0)
            if self._at_once and running >= self._at_once:
                raise _too_many(f"at most {many(self._at_once, 'request')} at once ([api] max_concurrent_requests)", 1)
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


def too_many_failures(seconds: int) -> TooManyError:
    """Return the error for a source that has to wait."""
    return TooManyError(
        f"Too many failed requests from this address. Try again in {seconds} s.", {"Retry-After": str(seconds)}
    )


def _too_many(limit: str, seconds: int) -> TooManyError:
    return TooManyError(f"Too many requests: {limit}; try again later.", {"Retry-After": str(seconds)})
