"""How long power changes take, so that a slow power state is not polled more often than it is worth.

For machines whose power another service controls, which serves one question at a time for all of them. One object for
each process, shared by its threads.
"""

from __future__ import annotations

import threading
from typing import Final

from ferroscope.contracts.bmc import Power

# The weight of the newest duration, and the share of the usual one after which to look for the first time.
_NEWEST: Final = 0.2
_SHARE: Final = 0.75
# Seconds: however slow others were, this one may be quick.
_LONGEST: Final = 15.0


class PowerTimes:
    """The usual seconds between a power command and its effect."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usual: dict[Power, float] = {}

    def took(self, power: Power, seconds: float) -> None:
        """Learn from a change that took so long."""
        with self._lock:
            usual = self._usual.get(power, seconds)
            self._usual[power] = usual + _NEWEST * (seconds - usual)

    def first_look(self, power: Power) -> float:
        """Return after how many seconds it is worth to look for the first time; 0 if that is not known."""
        with self._lock:
            return min(_SHARE * self._usual.get(power, 0.0), _LONGEST)
