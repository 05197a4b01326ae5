"""Who may wait for a BMC now: one request for each BMC, a bounded share for each network, pauses for the silent.

Pure: no clock, no thread, no I/O. Callers say what time it is (monotonic seconds) and hold a lock around
each call. What is decided here holds for one process; another one learns for itself which BMCs are silent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from ferroscope.contracts.queue import MOST_WITHOUT
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Request
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS

# Seconds without an answer after which a BMC call counts as silent: a healthy BMC takes less.
PATIENCE: Final = 3.0
# Seconds between two attempts at a BMC that does not answer: at first, and at most.
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
# How long somebody waits for a BMC, or for a network, that is in use.
_BUSY_PAUSE: Final = 1.0
_REMEMBERED: Final = 20_000


class Refusal(msgspec.Struct, frozen=True):
    """Not now: try again in ``after`` seconds; ``told``: on the node's timeline too."""

    after: float
    reason: Reason
    message: str
    told: bool = False


class Visit:
    """One request in a slot. ``calling_since``: when its present call to the BMC began; None between calls."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.calling_since: float | None = None

    def is_silent(self, now: float) -> bool:
        """Whether the BMC has been asked something and does not answer."""
        since = self.calling_since
        return since is not None and now - since > PATIENCE


class Admission:
    """``slots`` are for requests that get on; as many more threads may wait for BMCs that are silent.

    ``visits`` are those in the slots. A silent BMC gives its slot up while it is silent, so that however many
    there are, in whatever networks, the others hardly notice.
    """

    def __init__(self, slots: int, breakers: Breakers, visits: Collection[Visit]) -> None:
        self.slots = slots
        self.breakers = breakers
        self.visits = visits

    def free(self, now: float) -> int:
        """Return how many slots are free."""
        silent = sum(visit.is_silent(now) for visit in self.visits)
        return self.slots - len(self.visits) + min(silent, self.slots)

    def crowded(self, now: float) -> tuple[str, ...]:
        """Return the networks that have their share of the slots, or of the room for the silent."""
        share = max(1, self.slots // 2)
        at_work: Counter[str] = Counter()
        silent: Counter[str] = Counter()
        for visit in self.visits:
            if (network := visit.request.network) is not None:
                (silent if visit.is_silent(now) else at_work)[network] += 1
        full = [name for name, count in at_work.items() if count >= share]
        full += [name for name, count in silent.items() if count >= share and name not in full]
        return tuple(full[:MOST_WITHOUT])

    def refusal(self, request: Request, now: float) -> Refusal | None:
        """Return why the request may not go to its BMC now; None where it may."""
        if request.bmc is None:
            return None
        if any(visit.request.bmc == request.bmc for visit in self.visits):
            return Refusal(_BUSY_PAUSE, Reason.BMC_BUSY, f"another request is at the BMC {request.bmc}")
        if request.network in self.crowded(now):
            return Refusal(_BUSY_PAUSE, Reason.BMC_BUSY, f"too many requests are at BMCs in {request.network}")
        pause = self.breakers.pause(request.bmc, now) if _may_wait(request) else 0.0
        if not pause:
            return None
        message = f"the BMC {request.bmc} did not answer; it is asked again in {pause:.0f} s"
        return Refusal(pause, Reason.BMC_SILENT, message, told=True)


def _may_wait(request: Request) -> bool:
    """Whether a silent BMC holds it up: not what ends an inspection, nor an operator's command at its first attempt."""
    return request.event not in ENDING and (request.event not in COMMANDS or request.attempt > 1)


class _Open(msgspec.Struct):
    """A breaker that is open: after so many failures in a row, until then."""

    failures: int
    until: float


class Breakers:
    """A circuit breaker for each BMC: open after a call without an answer, closed by the first one with.

    The pause grows with each failure in a row, from ``FIRST_PAUSE`` to ``LONGEST_PAUSE`` seconds. ``jitter`` returns
    a number from 0 to 1: BMCs behind one broken switch shall not all be asked at the same moment.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._open: dict[str, _Open] = {}

    def failed(self, bmc: str, now: float) -> None:
        """A call to this BMC got no answer."""
        known = self._open.pop(bmc, None)
        if known is not None and known.until > now:  # the same attempt tried once more
            self._open[bmc] = known
            return
        if len(self._open) >= _REMEMBERED:
            del self._open[next(iter(self._open))]
        failures = 1 if known is None else known.failures + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE)
        self._open[bmc] = _Open(failures, now + pause * (0.75 + 0.25 * self._jitter()))

    def answered(self, bmc: str) -> None:
        """It answers: whatever it says, it is there."""
        self._open.pop(bmc, None)

    def pause(self, bmc: str, now: float) -> float:
        """Return for how many more seconds this BMC is left alone; 0.0: it may be asked."""
        known = self._open.get(bmc)
        return 0.0 if known is None else max(0.0, known.until - now)

    def open(self, now: float) -> Iterable[tuple[str, float]]:
        """Return the BMCs that are left alone, and for how many more seconds."""
        return [(bmc, one.until - now) for bmc, one in self._open.items() if one.until > now]
