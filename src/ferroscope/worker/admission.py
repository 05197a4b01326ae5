"""Which requests may call a BMC now: few per BMC, a bounded share per network, a circuit breaker for silent BMCs.

Pure: no clock, no thread, no I/O. Callers pass the time (monotonic seconds) and hold a lock around each call. The
decisions are those of one process; each process finds out for itself which BMCs are silent.
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
# Seconds until a request is tried again whose BMC or network is busy.
_BUSY_DELAY: Final = 1.0
_REMEMBERED: Final = 20_000


class Refusal(msgspec.Struct, frozen=True):
    """Try again in ``after`` seconds; ``noted``: also on the node's timeline."""

    after: float
    reason: Reason
    message: str
    noted: bool = False


class BmcRequest:
    """A request in a slot. ``calling_since``: when its present BMC call began; None between calls."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.calling_since: float | None = None

    def is_silent(self, now: float) -> bool:
        """Whether a call to the BMC has been unanswered for too long."""
        since = self.calling_since
        return since is not None and now - since > PATIENCE


class Admission:
    """``slots`` are for requests whose BMC responds; as many more threads may wait for silent BMCs.

    ``per_bmc`` requests may use one BMC at a time, each for another node: behind the address of a chassis manager are
    many systems, which would otherwise wait for each other. Each system still gets one request at a time, as a BMC of a
    single machine does: its answers to two commands at once are not reliable.

    ``requests`` are those in the slots. A request whose BMC is silent does not count against the slots meanwhile, so
    that silent BMCs, however many and in whatever networks, hardly delay the others.
    """

    def __init__(self, slots: int, per_bmc: int, breakers: Breakers, requests: Collection[BmcRequest]) -> None:
        self.slots = slots
        self.per_bmc = per_bmc
        self.breakers = breakers
        self.requests = requests

    def free(self, now: float) -> int:
        """Return how many slots are free."""
        silent = sum(one.is_silent(now) for one in self.requests)
        return self.slots - len(self.requests) + min(silent, self.slots)

    def crowded(self, now: float) -> tuple[str, ...]:
        """Return the networks that have used up their share of the slots, or of the threads for silent BMCs."""
        share = max(1, self.slots // 2)
        responding: Counter[str] = Counter()
        silent: Counter[str] = Counter()
        for one in self.requests:
            if (network := one.request.network) is not None:
                (silent if one.is_silent(now) else responding)[network] += 1
        full = [name for name, count in responding.items() if count >= share]
        full += [name for name, count in silent.items() if count >= share and name not in full]
        return tuple(full[:MOST_WITHOUT])

    def refusal(self, request: Request, now: float) -> Refusal | None:
        """Return why the request must not call its BMC now; None if it may."""
        if request.bmc is None:
            return None
        served = [one.request.node for one in self.requests if one.request.bmc == request.bmc]
        if len(served) >= self.per_bmc or request.node in served:
            return Refusal(_BUSY_DELAY, Reason.BMC_BUSY, f"BMC {request.bmc} is busy with {_counted(len(served))}")
        if request.network in self.crowded(now):
            return Refusal(_BUSY_DELAY, Reason.BMC_BUSY, f"too many requests are calling BMCs in {request.network}")
        pause = self.breakers.pause(request.bmc, now) if _respects_breaker(request) else 0.0
        if not pause:
            return None
        message = f"BMC {request.bmc} did not respond; trying again in {pause:.0f} s"
        return Refusal(pause, Reason.BMC_SILENT, message, noted=True)


def _counted(number: int) -> str:
    return "another request" if number == 1 else f"{number} other requests"


def _respects_breaker(request: Request) -> bool:
    """Whether an open breaker delays it: not the end of an inspection, nor the first attempt of a command."""
    return request.event not in ENDING and (request.event not in COMMANDS or request.attempt > 1)


class _Open(msgspec.Struct):
    """An open breaker, after ``failures`` in a row, until that time; ``node``: for which the BMC was called."""

    node: str
    failures: int
    until: float


class Breakers:
    """A circuit breaker for each BMC: opened by a call that timed out, closed by the first response.

    The pause grows with each failure in a row, from ``FIRST_PAUSE`` to ``LONGEST_PAUSE`` seconds. ``jitter`` returns
    a number from 0 to 1, so that BMCs behind one broken switch are not all called at the same moment.
    """

    def __init__(self, jitter: Callable[[], float]) -> None:
        self._jitter = jitter
        self._open: dict[str, _Open] = {}

    def failed(self, bmc: str, node: str, now: float) -> None:
        """A call to this BMC, for this node, got no response."""
        known = self._open.pop(bmc, None)
        if known is not None and known.until > now:  # another call of the same attempt
            self._open[bmc] = known
            return
        if len(self._open) >= _REMEMBERED:
            del self._open[next(iter(self._open))]
        failures = 1 if known is None else known.failures + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE)
        self._open[bmc] = _Open(node, failures, now + pause * (0.75 + 0.25 * self._jitter()))

    def answered(self, bmc: str) -> None:
        """The BMC responded, even if it refused."""
        self._open.pop(bmc, None)

    def pause(self, bmc: str, now: float) -> float:
        """Return for how many more seconds this BMC must not be called; 0.0: it may be called."""
        known = self._open.get(bmc)
        return 0.0 if known is None else max(0.0, known.until - now)

    def nodes(self, now: float) -> dict[str, str]:
        """Return the BMCs with an open breaker, and the node of each."""
        return {bmc: one.node for bmc, one in self._open.items() if one.until > now}

    def open(self, now: float) -> Iterable[tuple[str, float]]:
        """Return the BMCs with an open breaker, and for how many more seconds."""
        return [(bmc, one.until - now) for bmc, one in self._open.items() if one.until > now]
