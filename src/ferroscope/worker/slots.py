"""The slots of a lane: what is under way in them, and when there is room for more.

A slot outlives its attempt only where something follows in the same thread. What was ``abandoned`` (a hook that
does not return) has no slot any more, whatever its thread still does.
"""

from __future__ import annotations

import random
import threading
from typing import Final

from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.core.model import Claim, Request
from ferroscope.core.reasons import Reason
from ferroscope.telemetry.finding import Finding
from ferroscope.worker.admission import Admission, Breakers, Refusal, Visit
from ferroscope.worker.bmc_calls import Watch
from ferroscope.worker.context import TaskContext

_NAMED: Final = 3
_FULL: Final = Refusal(0.0, Reason.BMC_BUSY, "there is no slot")


class Slot(Visit):
    """What one thread carries out. ``claim`` is what it holds; ``context`` is that of its present attempt."""

    def __init__(self, request: Request, slots: Slots) -> None:
        super().__init__(request)
        self._slots = slots
        self.claim: Claim | None = None
        self.context: TaskContext | None = None
        self.since = slots.clock.monotonic()

    @property
    def watch(self) -> Watch | None:
        """What is told of calls to the BMC."""
        return self._slots.watch(self)

    def carries(self, context: TaskContext) -> None:
        """The attempt of this context begins in this slot."""
        self.context, self.claim = context, context.claim
        self.since = self._slots.clock.monotonic()

    @property
    def what(self) -> str:
        """What it is at, in words."""
        doing = self.context.doing if self.context is not None else ""
        request = self.request if self.context is None else self.context.request
        return f"{request.event} of node {request.node}" + (f" in {doing}" if doing else "")


class Slots:
    """Of the lane that computes: as many as there are."""

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
        """Wait for a free slot; return the networks to claim nothing of, None where there is no slot in time."""
        with self.changed:
            if self.changed.wait_for(lambda: self._stop.is_set() or self.free() > 0, timeout):
                return self.crowded()
            return None

    def crowded(self) -> tuple[str, ...]:
        return ()

    def enter(self, request: Request, *, claimed: bool) -> Slot | Refusal:
        """Give the request a slot; one that is ``claimed`` already had room a moment ago, and need not have it now."""
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
        """The slot is free again."""
        with self.changed:
            self._busy.discard(slot)
            self._abandoned.discard(slot)
            self.changed.notify_all()

    def abandon(self, slot: Slot) -> None:
        """Whatever still runs there counts no longer."""
        with self.changed:
            if slot in self._busy:
                self._busy.discard(slot)
                self._abandoned.add(slot)
            self.changed.notify_all()

    def busy(self) -> list[Slot]:
        with self.changed:
            return list(self._busy)

    def wake(self) -> None:
        """Let whoever waits look again."""
        with self.changed:
            self.changed.notify_all()

    def drain(self, timeout: float) -> list[Slot]:
        """Wait until nothing is under way any more; return what still is."""
        with self.changed:
            self.changed.wait_for(lambda: not self._busy, max(0.0, timeout))
            return list(self._busy)

    def watch(self, _slot: Slot) -> Watch | None:
        return None

    def status(self) -> str:
        """Say how full the lane is, and what has been under way for long."""
        said = f"{len(self._busy)} of {self.number} slots busy"
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if stuck:
            ago = self.clock.monotonic() - stuck[0].since
            said += f", {len(stuck)} given up that do not return ({stuck[0].what}, for {ago:.0f} s)"
        return said

    def counts(self) -> dict[str, int]:
        """Return how many slots there are, and how many of them are busy; ``given_up`` run on without one."""
        with self.changed:
            return {"slots": self.number, "busy": len(self._busy), "given_up": len(self._abandoned)}

    def problem(self) -> Finding | None:
        """Return what somebody should look into."""
        with self.changed:
            stuck = sorted(self._abandoned, key=lambda slot: slot.since)
        if not stuck:
            return None
        said = f"given up because it does not return: {stuck[0].what}" + _and_more(len(stuck) - 1)
        return Finding("attempt-hangs", "wrong", said, "correct the hook, and restart this worker to end its thread")


class BmcSlots(Slots):
    """Of the lane that waits for BMCs: see ``Admission``."""

    def __init__(self, number: int, *, clock: Clock, stop: StopFlag) -> None:
        super().__init__(number, clock=clock, stop=stop)
        self.breakers = Breakers(lambda: random.random())  # noqa: S311  # jitter, no secret
        self._admission = Admission(number, self.breakers, self._busy)

    def free(self) -> int:
        return self._admission.free(self.clock.monotonic())

    def crowded(self) -> tuple[str, ...]:
        return self._admission.crowded(self.clock.monotonic())

    def refusal(self, request: Request) -> Refusal | None:
        return self._admission.refusal(request, self.clock.monotonic())

    def watch(self, slot: Slot) -> Watch | None:
        return _BmcWatch(self, slot)

    def status(self) -> str:
        now = self.clock.monotonic()
        with self.changed:
            silent = sum(slot.is_silent(now) for slot in self._busy)
            left_alone = sorted(self.breakers.open(now), key=lambda one: one[1])
            said = f"{len(self._busy) - silent} of {self.number} slots busy"
        if silent:
            said += f", {silent} wait for BMCs that are silent"
        if left_alone:
            named = ", ".join(f"{bmc} ({pause:.0f} s)" for bmc, pause in left_alone[:_NAMED])
            more = _and_more(len(left_alone) - _NAMED)
            said += f"; BMCs that did not answer, and when they are asked again: {named}{more}"
        return said

    def counts(self) -> dict[str, int]:
        """``silent_bmcs`` are those that are left alone for a while, because they did not answer."""
        with self.changed:
            silent = len(list(self.breakers.open(self.clock.monotonic())))
        return super().counts() | {"silent_bmcs": silent}

    def problem(self) -> Finding | None:
        with self.changed:
            silent = sorted(bmc for bmc, _ in self.breakers.open(self.clock.monotonic()))
        if not silent:
            return super().problem()
        said = f"BMCs that do not answer, and are left alone for a while: {', '.join(silent[:_NAMED])}"
        more = _and_more(len(silent) - _NAMED)
        return Finding("bmc-silent", "note", said + more, "look at the network and at the BMCs; others are not delayed")


def _and_more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


class _BmcWatch:
    """Tells the slots of one attempt's calls to its BMC."""

    def __init__(self, slots: BmcSlots, slot: Slot) -> None:
        self._slots = slots
        self._slot = slot

    def began(self) -> None:
        self._slot.calling_since = self._slots.clock.monotonic()

    def ended(self, *, answered: bool) -> None:
        self._slot.calling_since = None
        bmc = self._slot.request.bmc
        if bmc is None:
            return
        with self._slots.changed:
            if answered:
                self._slots.breakers.answered(bmc)
            else:
                self._slots.breakers.failed(bmc, self._slots.clock.monotonic())

    def pause(self) -> float:
        bmc = self._slot.request.bmc
        with self._slots.changed:
            return 0.0 if bmc is None else self._slots.breakers.pause(bmc, self._slots.clock.monotonic())
