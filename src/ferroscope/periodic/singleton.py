"""A periodic task of which one runs at a time, wherever: an election, a leader, its loop.

The leader's loop waits on a flag of its own (``reset``), not on the process's: losing the office
resets the task, it does not stop the service. Losing a leader loses a couple of runs at most.
Source: the HA singleton periodic task of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import structlog

from ferroscope.domain.lease import LeaseProfile
from ferroscope.election import Candidate, Tenure
from ferroscope.ports.bus import Bus, Channel
from ferroscope.ports.clock import Clock, StopFlag
from ferroscope.ports.errors import LeaseLostError, StoreUnavailableError
from ferroscope.ports.store import Fence

_log = structlog.get_logger(__name__)


class PeriodicTask(Protocol):
    """What a singleton runs; ``name`` is its office, ``period`` in seconds (0: never)."""

    name: str
    period: float

    def step(self, fence: Fence) -> str:
        """Run once; every write begins with ``fence``. Returns what was done, in a sentence."""


class Singleton:
    """Stands for the task's office and, while in it, runs the task. One thread each calls ``run``.

    ``keep`` watches over a tenure from a thread of its own until it is over (see ``runtime``);
    ``bus`` tells of a released lease where the database can.
    """

    def __init__(
        self,
        task: PeriodicTask,
        candidate: Candidate,
        *,
        keep: Callable[[Tenure, StopFlag], None],
        profile: LeaseProfile,
        bus: Bus,
        clock: Clock,
        stop: StopFlag,
        new_flag: Callable[[], StopFlag] = threading.Event,
    ) -> None:
        self.task = task
        self._candidate = candidate
        self._keep = keep
        self._profile = profile
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._new_flag = new_flag
        self.sentence = f"{task.name} has not begun"

    def run(self) -> None:
        """Follow or lead until the process stops."""
        if not self.task.period:
            self.sentence = f"{self.task.name} is disabled"
            return
        try:
            while not self._stop.is_set():
                try:
                    self.stand()
                except StoreUnavailableError as exc:
                    self.sentence = f"{self.task.name} waits for the database: {exc}"
                    self._stop.wait(self._profile.poll)
        except Exception:
            self._stop.set()
            _log.exception("a periodic task failed; stopping the process", task=self.task.name)
            raise
        finally:
            self._stop.set()  # a process without one of its tasks is to be started again

    def stand(self) -> None:
        """Try to win the office once and serve in it; otherwise wait for the next election."""
        seen = self._bus.wait(Channel.LEASES, 0, 0.0)
        tenure = self._candidate.stand()
        self.sentence = self._candidate.sentence
        if tenure is None:
            self._candidate.wait(self._bus, seen, self._stop)
            return
        reset = self._new_flag()
        self._keep(tenure, reset)
        try:
            self.lead(tenure, reset)
        finally:
            tenure.resign()

    def lead(self, tenure: Tenure, reset: StopFlag) -> None:
        """Run the task once a period while in office."""
        while tenure.may_act() and not self._stop.is_set():
            try:
                self.sentence = f"{self._candidate.sentence}; {self.task.step(tenure.fence)}"
            except LeaseLostError as exc:
                self.sentence = f"was deposed: {exc}"
                return
            self._rest(tenure, reset)

    def _rest(self, tenure: Tenure, reset: StopFlag) -> None:
        """Wait for the next run, showing signs of life."""
        until = self._clock.monotonic() + self.task.period
        while (left := until - self._clock.monotonic()) > 0 and not self._stop.is_set():
            tenure.progress()
            if reset.wait(min(left, self._profile.renew)):
                return
        tenure.progress()
