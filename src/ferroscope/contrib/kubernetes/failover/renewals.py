"""For how long each kubelet has not renewed its lease, and each record of another leader has not changed.

Only this process's own clock and observations count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ferroscope.contracts.store import Clock
from ferroscope.core.remediation import Remediation


class RenewalWatch:
    """For one thread. ``renewals``: the last renewal of each kubelet, and when this process first saw it.

    ``began_at``: since when the renewals have been read so often that no silence of ``silence`` seconds was missed.
    """

    def __init__(self, clock: Clock, silence: float) -> None:
        self._clock = clock
        self._limit = silence
        self.renewals: dict[str, tuple[str, float]] = {}
        self._read_at = self.began_at = -math.inf
        # The versions of the records by UUID, while another process leads.
        self._followed: dict[str, tuple[str, float]] = {}

    def measure_silence(self, renewals: Mapping[str, str]) -> dict[str, float]:
        """Return the seconds since this process saw a new renewal of each kubelet."""
        now = self._clock.monotonic()
        if now - self._read_at > self._limit:
            self.began_at = now
            self._followed.clear()
        self._read_at = now
        self.renewals = _first_seen(renewals, self.renewals, now)
        return {name: now - since for name, (_, since) in self.renewals.items()}

    def note(self, name: str, renewal: str) -> None:
        """Note the present renewal of one kubelet; "" if the node has no lease."""
        if name not in self.renewals or self.renewals[name][0] != renewal:
            self.renewals[name] = (renewal, self._clock.monotonic())

    def follow(self, records: Iterable[Remediation]) -> None:
        """Note the records as another leader stores them."""
        versions = {record.uuid: _version_of(record) for record in records}
        self._followed = _first_seen(versions, self._followed, self._clock.monotonic())

    def followed_seconds(self, record: Remediation) -> float | None:
        """Return for how many seconds this process has seen the record unchanged; None if it has not followed it."""
        if record.uuid not in self._followed:
            return None
        version, since = self._followed[record.uuid]
        return self._clock.monotonic() - since if version == _version_of(record) else 0.0


def _first_seen(
    values: Mapping[str, str], before: Mapping[str, tuple[str, float]], now: float
) -> dict[str, tuple[str, float]]:
    """Return each value with the time when it was first seen; ``before``: the previous result."""
    return {
        key: before[key] if key in before and before[key][0] == value else (value, now) for key, value in values.items()
    }


def _version_of(record: Remediation) -> str:
    """Return a text that changes each time that the record is stored."""
    return f"{record.epoch} {record.updated_at}"
