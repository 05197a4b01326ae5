"""The slots of a lane: what is running in them, and which requests may have one.

In the lane that waits for BMCs, there are few for each BMC and a bounded share for each network, and a circuit breaker
keeps off the requests whose BMC is silent. ``Admission`` and ``Breakers`` are pure: callers pass the time (monotonic
seconds) and hold a lock around each call. They decide for one process; each process finds silent BMCs for itself.

A slot outlives its attempt only if something follows in the same thread. An ``abandoned`` attempt, such as a hook that
does not return, has lost its slot, whatever its thread still does.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import msgspec

from ferroscope.contracts.store import MOST_WITHOUT, Clock, StopFlag
from ferroscope.core.lanes import ENDING
from ferroscope.core.model import Claim, Request
from ferroscope.core.states import COMMANDS
from ferroscope.worker.attempt import Attempt, Locked
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.values import many

# Seconds without an answer after which a BMC call counts as silent: a healthy BMC takes less.
SILENT_SECONDS: Final = 3.0
# Seconds between two attempts at a BMC that does not answer: at first, and at most.
FIRST_PAUSE: Final = 5.0
LONGEST_PAUSE: Final = 300.0
# A request whose BMC or network is busy is tried again after this.
_BUSY_DELAY_SECONDS: Final = 1.0
_MAX_BREAKERS: Final = 20_000
# Seconds after which an idle thread ends.
_IDLE_SECONDS: Final = 15.0


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
        return self.calling_since is not None and now - self.calling_since > SILENT_SECONDS


class Admission:
    """``slots`` are for requests whose BMC responds; as many more threads may wait for silent BMCs.

    ``per_bmc`` requests may use one BMC at a time, each for another node: many systems share the address of a chassis
    manager, and would wait for each other. Each system still gets one request at a time, as the BMC of a single machine
    does: its answers to two commands at once are not reliable.

    ``requests`` are in the slots. A request whose BMC is silent does not count against the slots meanwhile, so silent
    BMCs hardly delay the others, however many there are and in which networks.
    """

    def __init__(self, slots: int, per_bmc: int, breakers: Breakers, requests: Collection[BmcRequest]) -> None:
        self.slots, self.per_bmc, self.breakers, self.requests = slots, per_bmc, breakers, requests

    def free(self, now: float) -> int:
        silent = sum(slot.is_silent(now) for slot in self.requests)
        return self.slots - len(self.requests) + min(silent, self.slots)

    def crowded_networks(self, now: float) -> tuple[str, ...]:
        """Return the networks that have used up their share of the slots, or of the threads for silent BMCs."""
        share = max(1, self.slots // 2)
        responding: Counter[str] = Counter()
        silent: Counter[str] = Counter()
        for slot in self.requests:
            if (network := slot.request.network) is not None:
                (silent if slot.is_silent(now) else responding)[network] += 1
        full = [name for name, count in responding.items() if count >= share]
        full += [name for name, count in silent.items() if count >= share and name not in full]
        return tuple(full[:MOST_WITHOUT])

    def refusal(self, request: Request, now: float) -> Refusal | None:
        """Return why the request must not call its BMC now; None if it may."""
        if request.bmc is None:
            return None
        served = [slot.request.node for slot in self.requests if slot.request.bmc == request.bmc]
        if len(served) >= self.per_bmc or request.node in served:
            others = "another request" if len(served) == 1 else f"{len(served)} other requests"
            return Refusal(_BUSY_DELAY_SECONDS, Reason.BMC_BUSY, f"BMC {request.bmc} is busy with {others}")
        if request.network in self.crowded_networks(now):
            message = f"too many requests are calling BMCs in {request.network}"
            return Refusal(_BUSY_DELAY_SECONDS, Reason.BMC_BUSY, message)
        pause = self.breakers.pause(request.bmc, now) if _respects_breaker(request) else 0.0
        if not pause:
            return None
        message = f"BMC {request.bmc} did not respond; trying again in {pause:.0f} s"
        return Refusal(pause, Reason.BMC_SILENT, message, noted=True)


def _respects_breaker(request: Request) -> bool:
    """Whether an open breaker delays it: not the end of an inspection, nor the first attempt of a command."""
    return request.event not in ENDING and (request.event not in COMMANDS or request.attempt > 1)


class OpenBreaker(msgspec.Struct):
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
        self._open: dict[str, OpenBreaker] = {}

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
        self._open[bmc] = OpenBreaker(node, failures, now + pause * (0.75 + 0.25 * self._jitter()))

    def record_answer(self, bmc: str) -> None:
        """The BMC responded, even if it refused."""
        self._open.pop(bmc, None)

    def pause(self, bmc: str, now: float) -> float:
        """Return for how many more seconds this BMC must not be called."""
        breaker = self._open.get(bmc)
        return 0.0 if breaker is None else max(0.0, breaker.until - now)

    def open(self, now: float) -> dict[str, OpenBreaker]:
        """Return the open breakers, by BMC."""
        return {bmc: breaker for bmc, breaker in self._open.items() if breaker.until > now}


_MAX_NAMED: Final = 3
# Silent BMCs whose machines a problem leads to.
_MAX_FOUND_NODES: Final = 40
_FULL: Final = Refusal(0.0, Reason.BMC_BUSY, "no free slot")


class Slot(BmcRequest):
    """The work of one thread: the ``claim`` that it holds, and the present ``attempt``, whose BMC calls it observes."""

    def __init__(self, request: Request, slots: Slots) -> None:
        super().__init__(request)
        self.claim: Claim | None = None
        self.attempt: Attempt | None = None
        self.since = slots.clock.monotonic()
        self._slots = slots

    def begin_attempt(self, attempt: Attempt) -> None:
        """An attempt begins in this slot, which learns of its BMC calls."""
        attempt.bmc_observer = self
        self.attempt, self.claim = attempt, attempt.claim
        self.since = self._slots.clock.monotonic()

    def take(self, locked: Locked) -> None:
        """Carry out what follows in a thread of this slot's lane."""
        self._slots.begin(self, locked.claim, locked)

    def release(self) -> None:
        self._slots.leave(self)

    def call_started(self) -> None:
        self.calling_since = self._slots.clock.monotonic()

    def call_ended(self, *, answered: bool) -> None:
        self.calling_since = None
        breakers, bmc = self._slots.breakers, self.request.bmc
        if breakers is None or bmc is None:
            return
        with self._slots.changed:
            if answered:
                breakers.record_answer(bmc)
            else:
                breakers.record_failure(bmc, self.request.node, self._slots.clock.monotonic())

    def retry_after(self) -> float:
        breakers, bmc = self._slots.breakers, self.request.bmc
        if breakers is None or bmc is None:
            return 0.0
        with self._slots.changed:
            return breakers.pause(bmc, self._slots.clock.monotonic())

    @property
    def description(self) -> str:
        """What is running in the slot."""
        doing = self.attempt.doing if self.attempt is not None else ""
        request = self.request if self.attempt is None else self.attempt.request
        return f"{request.event} of node {request.node}" + (f" in {doing}" if doing else "")


class Slots:
    """The slots of the compute lane."""

    breakers: Breakers | None = None
    threads: Threads
    work: Callable[[Slot, Claim, Locked | None], None]

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

    def refusal(self, _request: Request) -> Refusal | None:
        return None

    def enter(self, request: Request, *, claimed: bool) -> Slot | Refusal:
        """Give the request a slot; a ``claimed`` one gets it even if the last slot was taken since."""
        with self.changed:
            if not claimed and self.free() <= 0:
                return _FULL
            refusal = self.refusal(request)
            if refusal is not None:
                return refusal
            slot = Slot(request, self)
            self._busy.add(slot)
            return slot

    def begin(self, slot: Slot, claim: Claim, handed: Locked | None = None) -> None:
        """Carry out the claimed request in ``slot``, in a thread."""
        slot.claim = claim
        self.threads.submit(partial(self.work, slot, claim, handed))

    def leave(self, slot: Slot) -> None:
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
        with self.changed:
            self.changed.notify_all()

    def drain(self, timeout: float) -> list[Slot]:
        """Wait until no slot is busy; return those that still are."""
        with self.changed:
            self.changed.wait_for(lambda: not self._busy, max(0.0, timeout))
            return list(self._busy)

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

    breakers: Breakers

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

    def status(self) -> str:
        now = self.clock.monotonic()
        with self.changed:
            silent = sum(slot.is_silent(now) for slot in self._busy)
            open_breakers = sorted(self.breakers.open(now).items(), key=lambda item: item[1].until)
            text = f"{len(self._busy) - silent} of {many(self.number, 'slot')} busy"
        if silent:
            text += f", {silent} waiting for silent BMCs"
        if open_breakers:
            named = ", ".join(f"{bmc} (in {breaker.until - now:.0f} s)" for bmc, breaker in open_breakers[:_MAX_NAMED])
            named += _and_more(len(open_breakers) - _MAX_NAMED)
            text += f"; BMCs that did not respond, to be tried again: {named}"
        return text

    def counts(self) -> dict[str, int]:
        """``silent_bmcs`` are those with an open circuit breaker."""
        with self.changed:
            silent = len(self.breakers.open(self.clock.monotonic()))
        return super().counts() | {"silent_bmcs": silent}

    def problem(self) -> Finding | None:
        with self.changed:
            breakers = self.breakers.open(self.clock.monotonic())
        if not breakers:
            return super().problem()
        silent = sorted(breakers)
        summary = f"BMCs that do not respond: {', '.join(silent[:_MAX_NAMED])}{_and_more(len(silent) - _MAX_NAMED)}"
        advice = "check the network and the BMCs; other BMCs are not delayed"
        # A query has a limited length.
        node_uuids = dict.fromkeys(breakers[bmc].node for bmc in silent[:_MAX_FOUND_NODES])
        return Finding("bmc-silent", "note", summary, advice, f"uuid in ({', '.join(node_uuids)})")


def _and_more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


class _ThreadJob:
    """The next job of a thread, and the event that wakes it up."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call
        self.woken = threading.Event()


class Threads:
    """Threads that are started on demand, and kept for a while for the next job."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Condition()
        self._idle: list[_ThreadJob] = []
        self._started = 0
        self._closed = False

    def submit(self, call: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                job = self._idle.pop()
                job.call = call
                job.woken.set()
                return
            self._started += 1
            name = f"{self._name}-{self._started}"
        job = _ThreadJob(call)
        threading.Thread(target=lambda: self._main(job), name=name, daemon=True).start()

    def close(self) -> None:
        """Let idle threads end now, and the others after their job."""
        with self._lock:
            self._closed = True
            for job in self._idle:
                job.woken.set()
            self._idle.clear()

    def _main(self, job: _ThreadJob) -> None:
        while job.call is not None:
            job.call()
            job.call = None
            job.woken.clear()
            with self._lock:
                if self._closed:
                    return
                self._idle.append(job)
            if not job.woken.wait(_IDLE_SECONDS):
                with self._lock:
                    if job in self._idle:
                        self._idle.remove(job)
