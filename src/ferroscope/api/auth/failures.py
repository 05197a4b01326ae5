"""Limits on guessing passwords, which never lock out users who know theirs.

All callers behind one NAT, behind one untrusted proxy, or on one host are one source. A limit by source alone would let
one of them lock out the others. So failures are counted by name within each source, and the limit of a source only
bounds how many names can be tried. Calls that are not guesses do not count: access tokens, passwords that were right
recently, and wrong passwords that are repeated, as by a program with an old password.
"""

from __future__ import annotations

from typing import Final

from ferroscope.api.rate_limit import Buckets
from ferroscope.config.options import ApiSettings
from ferroscope_client.core.values import limit_key, parse_ip

# A password is worth more attempts to an attacker than a MAC address.
BURST_FAILURES: Final = 20
# A person mistypes a password, but not often. Rates are multiples of ``[api] failure_rate``.
BURST_MISTYPED: Final = 3
_MISTYPED_RATE: Final = 1 / 200
# Users of one host could otherwise call from 16 million addresses.
_THIS_HOST: Final = "loopback"


def guesses(settings: ApiSettings) -> Buckets:
    """Return the limit on guesses of a password that is not the caller's own: as many as a person may mistype."""
    return Buckets(settings.failure_rate * _MISTYPED_RATE, BURST_MISTYPED)


class FailedLogins:
    """Counts wrong passwords by source and name, and by source. One instance serves all threads.

    In a source with too many failures, each name still has a few tries, unless the source invents names.
    """

    def __init__(self, settings: ApiSettings) -> None:
        rate = settings.failure_rate
        self._names = Buckets(rate, BURST_FAILURES)
        self._sources = Buckets(rate, BURST_FAILURES)
        self._few = Buckets(rate * _MISTYPED_RATE, BURST_MISTYPED)
        self._others = Buckets(rate, BURST_FAILURES)

    def wait(self, source: str, name: str, now: float) -> int:
        """Return the seconds until this source may try another password of this name; 0: none."""
        if not source:
            return 0
        place = _place(source)
        wait = self._names.wait((place, name), now)
        if wait or not (elsewhere := self._sources.wait(place, now)):
            return wait
        return self._others.wait(place, now) if not self._few.wait((place, name), now) else elsewhere

    def count_failure(self, source: str, name: str, now: float) -> None:
        """Count a wrong password."""
        if not source:
            return
        place = _place(source)
        self._names.take((place, name), now)
        if self._sources.take(place, now):
            self._few.take((place, name), now)
            self._others.take(place, now)


def _place(source: str) -> str:
    address = parse_ip(source)
    return _THIS_HOST if address is not None and address.is_loopback else limit_key(source)
