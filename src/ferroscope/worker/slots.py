"""The slots of a lane: what is running in them, and which requests may have one.

In the lane that waits for BMCs, these are few per BMC and a bounded share per network, and a circuit breaker keeps off
those whose BMC is silent. ``Admission`` and ``Breakers`` are pure: callers pass the time (monotonic seconds) and hold a
lock around each call. The decisions are those of one process; each process finds out for itself which BMCs are silent.

A slot is kept after its attempt only if something follows in the same thread. An attempt that was ``abandoned`` (a hook
that does not return) has no slot any more, whatever its thread still does.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final

import msgspec

from ferroscope.contracts.queue import MOST_WITHOUT, Clock, StopFlag
from ferroscope.core.finding import Finding
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Request
from ferroscope.core.reasons import Reason
from ferroscope.core.states import COMMANDS
from ferroscope.core.values import many
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.bmc import BmcObserver, Unobserved

# Seconds without an answer after which a BMC call counts as silent: a healthy BMC takes less.
SILENT_SECONDS: Final = 3.0
# Seconds between two attempts at a BMC that does not answer: at first, and at most.
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
# Seconds until a request is tried again whose BMC or network is busy.
_BUSY_DELAY: Final = 1.0
_MAX_BREAKERS: Final = 20_000


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
        return since is not None and now - since > SILENT_SECONDS


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
        silent = sum(bmc_request.is_silent(now) for bmc_request in self.requests)
        return self.slots - len(self.requests) + min(silent, self.slots)

    def crowded_networks(self, now: float) -> tuple[str, ...]:
        """Return the networks that have used up their share of the slots, or of the threads for silent BMCs."""
        share = max(1, self.slots // 2)
        responding: Counter[str] = Counter()
        silent: Counter[str] = Counter()
        for bmc_request in self.requests:
            if (network := bmc_request.request.network) is not None:
                (silent if bmc_request.is_silent(now) else responding)[network] += 1
        full = [name for name, count in responding.items() if count >= share]
        full += [name for name, count in silent.items() if count >= share and name not in full]
        return tuple(full[:MOST_WITHOUT])

    def refusal(self, request: Request, now: float) -> Refusal | None:
        """Return why the request must not call its BMC now; None if it may."""
        if request.bmc is None:
            return None
        served = [bmc_request.request.node for bmc_request in self.requests if bmc_request.request.bmc == request.bmc]
        if len(served) >= self.per_bmc or request.node in served:
            return Refusal(
                _BUSY_DELAY, Reason.BMC_BUSY, f"BMC {request.bmc} is busy with {_count_requests(len(served))}"
            )
        if request.network in self.crowded_networks(now):
            return Refusal(_BUSY_DELAY, Reason.BMC_BUSY, f"too many requests are calling BMCs in {request.network}")
        pause = self.breakers.pause(request.bmc, now) if _respects_breaker(request) else 0.0
        if not pause:
            return None
        message = f"BMC {request.bmc} did not respond; trying again in {pause:.0f} s"
        return Refusal(pause, Reason.BMC_SILENT, message, noted=True)


def _count_requests(number: int) -> str:
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

    def record_failure(self, bmc: str, node: str, now: float) -> None:
        """A call to this BMC, for this node, got no response."""
        breaker = self._open.pop(bmc, None)
        if breaker is not None and breaker.until > now:  # another call of the same attempt
            self._open[bmc] = breaker
            return
        if len(self._open) >= _MAX_BREAKERS:
            del self._open[next(iter(self._open))]
        failures = 1 if breaker is None else breaker.failures + 1
        pause = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 16), LONGEST_PAUSE)
        self._open[bmc] = _Open(node, failures, now + pause * (0.75 + 0.25 * self._jitter()))

    def record_answer(self, bmc: str) -> None:
        """The BMC responded, even if it refused."""
        self._open.pop(bmc, None)

    def pause(self, bmc: str, now: float) -> float:
        """Return for how many more seconds this BMC must not be called; 0.0: it may be called."""
        breaker = self._open.get(bmc)
        return 0.0 if breaker is None else max(0.0, breaker.until - now)

    def nodes(self, now: float) -> dict[str, str]:
        """Return the BMCs with an open breaker, and the node of each."""
        return {bmc: breaker.node for bmc, breaker in self._open.items() if breaker.until > now}

    def open(self, now: float) -> Iterable[tuple[str, float]]:
        """Return the BMCs with an open breaker, and for how many more seconds."""
        return [(bmc, breaker.until - now) for bmc, breaker in self._open.items() if breaker.until > now]


_MAX_NAMED: Final = 3
# Silent BMCs whose machines a problem leads to.
_MAX_FOUND_NODES: Final = 40
_FULL: Final = Refusal(0.0, Reason.BMC_BUSY, "no free slot")


class Slot(BmcRequest):
    """The work of one thread: the ``claim`` that it holds, and the present ``attempt``."""

    def __init__(self, request: Request, slots: Slots) -> None:
        super().__init__(request)
        self._slots = slots
        self.claim: Claim | None = None
        self.attempt: Attempt | None = None
        self.since = slots.clock.monotonic()

    def attempt_started(self, attempt: Attempt) -> None:
        attempt.bmc_observer = self._slots.observer(self)
        self.attempt, self.claim = attempt, attempt.claim
        self.since = self._slots.clock.monotonic()

    @property
    def description(self) -> str:
        """What is running in it."""
        doing = self.attempt.doing if self.attempt is not None else ""
        request = self.request if self.attempt is None else self.attempt.request
        return f"{request.event} of node {request.node}" + (f" in {doing}" if doing else "")


class Slots:
    """The slots of the compute lane."""

    def __init__(self, number: int, *, clock: Clock, stop: StopFlag) -> None:
        self.number = number
        self.clock = clock
        self.changed = threading.Condition()
        self._stop = stop
        self._busy: set[Slot] = set()
        self._abandoned: set[Slot] = set()

    def free(self) -> int:
        """Return how many slots are free; the caller holds the lock."""
        return self.number - len(self._busy)

    def wait_for_room(self, timeout: float) -> tuple[str, ...] | None:
        """Wait for a free slot; return the networks to claim nothing from, None if there was no slot in time."""
        with self.changed:
            if self.changed.wait_for(lambda: self._stop.is_set() or self.free() > 0, timeout):
                return self.crowded_networks()
            return None

    def crowded_networks(self) -> tuple[str, ...]:
        return ()

    def enter(self, request: Request, *, claimed: bool) -> Slot | Refusal:
        """Give the request a slot. One that is ``claimed`` already gets one even if the last slot was taken since."""
        with self.changed:
            if not claimed and self.free() <= 0:
                return _FULL
            refusal = self.refusal(request)
            if refusal is not None:
                return refusal
            slot = Slot(request, self)
            self._busy.add(slot)
            return slot

    def refusal(self, _request: Request) -> Refusal | None:
        return None

    def leave(self, slot: Slot) -> None:
        """Free the slot."""
        with self.changed:
            self._busy.discard(slot)
            self._abandoned.discard(slot)
            self.changed.notify_all()

    def abandon(self, slot: Slot) -> None:
        """Free the slot although its thread is still running."""
        with self.changed:
            if slot in self._busy:
                self._busy.discard(slot)
                self._abandoned.add(slot)
            self.changed.notify_all()

    def busy(self) -> list[Slot]:
        with self.changed:
            return list(self._busy)

    def wake(self) -> None:
        """Wake all threads that wait for a slot."""
        with self.changed:
            self.changed.notify_all()

    def drain(self, timeout: float) -> list[Slot]:
        """Wait until no slot is busy; return those that still are."""
        with self.changed:
            self.changed.wait_for(lambda: not self._busy, max(0.0, timeout))
            return list(self._busy)

    def observer(self, _slot: Slot) -> BmcObserver:
        return Unobserved()

    def status(self) -> str:
        """Return how full the lane is, and what does not return."""
        text = f"{len(self._busy)} of {many(self.number, 'slot')} busy"
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if stuck:
            ago = self.clock.monotonic() - stuck[0].since
            text += f", {len(stuck)} abandoned ({stuck[0].description}, running for {ago:.0f} s)"
        return text

    def counts(self) -> dict[str, int]:
        """Return the number of slots, of busy ones, and of abandoned attempts (``given_up``)."""
        with self.changed:
            return {"slots": self.number, "busy": len(self._busy), "given_up": len(self._abandoned)}

    def problem(self) -> Finding | None:
        """Return what an operator should look into."""
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if not stuck:
            return None
        summary = f"abandoned because it does not return: {stuck[0].description}" + _and_more(len(stuck) - 1)
        return Finding("attempt-hangs", "wrong", summary, "fix the hook, then restart this worker to end its thread")


class BmcSlots(Slots):
    """The slots of the lane that waits for BMCs, see ``Admission``."""

    def __init__(self, number: int, per_bmc: int, *, clock: Clock, stop: StopFlag) -> None:
        super().__init__(number, clock=clock, stop=stop)
        self.breakers = Breakers(lambda: random.random())  # noqa: S311  # jitter, no secret
        self._admission = Admission(number, per_bmc, self.breakers, self._busy)

    def free(self) -> int:
        return self._admission.free(self.clock.monotonic())

    def crowded_networks(self) -> tuple[str, ...]:
        return self._admission.crowded_networks(self.clock.monotonic())

    def refusal(self, request: Request) -> Refusal | None:
        return self._admission.refusal(request, self.clock.monotonic())

    def observer(self, slot: Slot) -> BmcObserver:
        return _SlotObserver(self, slot)

    def status(self) -> str:
        now = self.clock.monotonic()
        with self.changed:
            silent = sum(slot.is_silent(now) for slot in self._busy)
            open_breakers = sorted(self.breakers.open(now), key=lambda item: item[1])
            text = f"{len(self._busy) - silent} of {many(self.number, 'slot')} busy"
        if silent:
            text += f", {silent} waiting for silent BMCs"
        if open_breakers:
            named = ", ".join(f"{bmc} (in {pause:.0f} s)" for bmc, pause in open_breakers[:_MAX_NAMED])
            text += (
                f"; BMCs that did not respond, to be tried again: {named}{_and_more(len(open_breakers) - _MAX_NAMED)}"
            )
        return text

    def counts(self) -> dict[str, int]:
        """``silent_bmcs`` are those with an open circuit breaker."""
        with self.changed:
            silent = len(list(self.breakers.open(self.clock.monotonic())))
        return super().counts() | {"silent_bmcs": silent}

    def problem(self) -> Finding | None:
        with self.changed:
            nodes = self.breakers.nodes(self.clock.monotonic())
        if not nodes:
            return super().problem()
        silent = sorted(nodes)
        summary = f"BMCs that do not respond: {', '.join(silent[:_MAX_NAMED])}{_and_more(len(silent) - _MAX_NAMED)}"
        advice = "check the network and the BMCs; other BMCs are not delayed"
        # A query has a limited length.
        node_uuids = dict.fromkeys(nodes[bmc] for bmc in silent[:_MAX_FOUND_NODES])
        return Finding("bmc-silent", "note", summary, advice, f"uuid in ({', '.join(node_uuids)})")


def _and_more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


class _SlotObserver:
    """Reports one attempt's BMC calls to its slot and to the circuit breakers."""

    def __init__(self, slots: BmcSlots, slot: Slot) -> None:
        self._slots = slots
        self._slot = slot

    def call_started(self) -> None:
        self._slot.calling_since = self._slots.clock.monotonic()

    def call_ended(self, *, answered: bool) -> None:
        self._slot.calling_since = None
        bmc = self._slot.request.bmc
        if bmc is None:
            return
        with self._slots.changed:
            if answered:
                self._slots.breakers.record_answer(bmc)
            else:
                self._slots.breakers.record_failure(bmc, self._slot.request.node, self._slots.clock.monotonic())

    def retry_after(self) -> float:
        bmc = self._slot.request.bmc
        with self._slots.changed:
            return 0.0 if bmc is None else self._slots.breakers.pause(bmc, self._slots.clock.monotonic())
