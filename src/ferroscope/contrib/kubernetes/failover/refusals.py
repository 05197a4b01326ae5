"""What the API server has refused: tried again at growing intervals, and given up in the end; the rest goes on."""

from __future__ import annotations

from typing import Final

import msgspec

from ferroscope.contracts.queue import Clock

_FIRST: Final = 1.0  # seconds until the second attempt; each further one takes twice as long,
_LONGEST: Final = 60.0  # at most
_LONGEST_WAIT: Final = 5.0  # the same, while a disruption budget says no: it may say yes in a moment
_MOST: Final = 8  # refusals, in about two minutes
# What does not last: no answer, and an object that has changed since it was read.
_PASSES: Final = (0, 409)


class _Refusal(msgspec.Struct, frozen=True):
    times: int
    counted: int
    next_at: float
    message: str


class Refusals:
    """By the UIDs of objects; times are by our own clock. A successor starts anew."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[str, _Refusal] = {}

    def due(self, uid: str) -> bool:
        """Whether it may be tried now."""
        found = self._refused.get(uid)
        return found is None or found.next_at <= self._clock.monotonic()

    def refused(self, uid: str, status: int, message: str) -> None:
        """It was tried, in vain."""
        before = self._refused.get(uid, _Refusal(0, 0, 0.0, ""))
        pause = min(_FIRST * 2.0**before.times, _LONGEST)
        counted = before.counted + (status not in _PASSES)
        self._refused[uid] = _Refusal(before.times + 1, counted, self._clock.monotonic() + pause, message)

    def budget(self, uid: str) -> None:
        """A disruption budget does not allow it now, which is never given up."""
        times = self._refused[uid].times if uid in self._refused else 0
        pause = min(_FIRST * 2.0**times, _LONGEST_WAIT)
        self._refused[uid] = _Refusal(times + 1, 0, self._clock.monotonic() + pause, "")

    def done(self, uid: str) -> None:
        """It was tried, with success."""
        self._refused.pop(uid, None)

    def clear(self) -> None:
        """Forget everything."""
        self._refused.clear()

    def given_up(self) -> dict[str, str]:
        """Return what was given up, by UID, and what the API server said."""
        return {uid: one.message for uid, one in self._refused.items() if one.counted >= _MOST}
