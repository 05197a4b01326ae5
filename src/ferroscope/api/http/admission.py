"""Limits on the calls of one caller: how many may run at once, and how many may begin per second.

A caller is a name: the user that authenticated, else the source address. Limits on connections, bytes and queued
requests apply before these, see ``runtime.http_limits``.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ferroscope.api.http.errors import TooManyError
from ferroscope.config.options import ApiSettings
from ferroscope.contracts.queue import Clock

# Callers that are remembered; the one that called longest ago is dropped first.
_REMEMBERED: Final = 20_000


class Admission:
    """One instance serves all threads of a process."""

    def __init__(self, settings: ApiSettings, clock: Clock) -> None:
        self._rate, self._burst = settings.request_rate, float(settings.request_burst)
        self._at_once = settings.max_concurrent_requests
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
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
            if self._rate and (wait := self._take(caller)):
                raise _too_many(f"at most {self._rate:g} requests per second ([api] request_rate)", wait)
            self._running[caller] = running + 1
        try:
            yield
        finally:
            with self._lock:
                self._running[caller] -= 1
                if not self._running[caller]:
                    del self._running[caller]

    def _take(self, caller: str) -> int:
        """Take a token; return the seconds to wait if there is none."""
        now = self._clock.monotonic()
        tokens, at = self._buckets.get(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._rate)
        is_free = tokens >= 1.0
        self._buckets[caller] = (tokens - 1.0 if is_free else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        return 0 if is_free else math.ceil((1.0 - tokens) / self._rate)


def _too_many(limit: str, seconds: int) -> TooManyError:
    return TooManyError(f"Too many requests: {limit}; try again later.", {"Retry-After": str(seconds)})
