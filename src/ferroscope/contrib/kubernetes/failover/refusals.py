"""Calls that the API server refused: repeated at growing intervals, and finally dropped; the rest continues."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.store import Clock

_FIRST_PAUSE_SECONDS: Final = 1.0  # seconds until the second attempt; each further one takes twice as long,
_MAX_PAUSE_SECONDS: Final = 60.0  # at most
_MAX_BUDGET_PAUSE_SECONDS: Final = 5.0  # the same, while a disruption budget says no: it may say yes in a moment
_MAX_REFUSALS: Final = 8  # refusals, in about two minutes
# Temporary errors: no answer, and an object that has changed since it was read.
_PASSES: Final = (0, 409)


class _FailoverRefusal(msgspec.Struct, frozen=True):
    times: int
    counted: int
    next_at: float
    message: str


class Refusals:
    """By the UIDs of objects; times are by our own clock. A successor starts anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, _FailoverRefusal] = {}

    def is_due(self, uid: str) -> bool:
        """Whether it may be tried now."""
        refusal = self._refused.get(uid)
        return refusal is None or refusal.next_at <= self._clock.monotonic()

    def record_refusal(self, uid: str, status: int, message: str) -> None:
        """Record a refused try."""
        before = self._refused.get(uid, _FailoverRefusal(0, 0, 0.0, ""))
        pause = min(_FIRST_PAUSE_SECONDS * 2.0**before.times, _MAX_PAUSE_SECONDS)
        counted = before.counted + (status not in _PASSES)
        self._refused[uid] = _FailoverRefusal(before.times + 1, counted, self._clock.monotonic() + pause, message)

    def record_budget(self, uid: str) -> None:
        """Record that a disruption budget does not allow it now; this is never dropped."""
        times = self._refused[uid].times if uid in self._refused else 0
        pause = min(_FIRST_PAUSE_SECONDS * 2.0**times, _MAX_BUDGET_PAUSE_SECONDS)
        self._refused[uid] = _FailoverRefusal(times + 1, 0, self._clock.monotonic() + pause, "")

    def forget(self, uid: str) -> None:
        """Forget it after a successful try."""
        self._refused.pop(uid, None)

    def clear(self) -> None:
        """Forget everything."""
        self._refused.clear()

    def given_up(self) -> dict[str, str]:
        """Return the dropped calls by UID, with the API server's message."""
        return {uid: refusal.message for uid, refusal in self._refused.items() if refusal.counted >= _MAX_REFUSALS}
