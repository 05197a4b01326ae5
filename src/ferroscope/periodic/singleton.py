"""A periodic task of which one runs at a time, wherever: an election, a leader, its loop.

The leader's loop waits on a flag of its own (``reset``), not on the process's: losing the lease
resets the task, it does not stop the service. Losing a leader loses a couple of runs at most.

A step that gives no sign of life for a lease's time to live loses its leadership, and nothing else: somebody else leads
on, the fence refuses whatever the step still writes, and the task campaigns again, anew, in another thread.
Source: the HA singleton periodic task of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

import structlog

from ferroscope.contracts.errors import LeaseLostError, StoreUnavailableError
from ferroscope.contracts.queue import Bus, Channel, Clock, StopFlag
from ferroscope.contracts.store import StepLeadership
from ferroscope.core.model import LeaseProfile
from ferroscope.leadership import Election, Leadership
from ferroscope.telemetry.finding import Finding

_log = structlog.get_logger(__name__)

# Threads of one task that hang and are left to themselves; beyond that, another one would not help.
_MOST_HUNG: Final = 10


class PeriodicTask(Protocol):
    """What a singleton runs; ``name`` is that of its lease, ``period`` in seconds (0: never)."""

    name: str
    period: float

    def step(self, leadership: StepLeadership) -> str:
        """Run once, however long, as ``StepLeadership`` asks for. Returns what was done, in a sentence."""


@runtime_checkable
class KeepsThreads(Protocol):
    """A task that has work done by threads of its own."""

    def close(self) -> None:
        """Begin nothing more: the process stops, and waits for what these threads have begun."""


class _StoppingError(Exception):
    """The process stops: a long step must not keep it waiting."""


class _Step:
    """What a step knows of its leadership, which ends when the process stops, too."""

    def __init__(self, leadership: Leadership, stop: StopFlag) -> None:
        self._leadership = leadership
        self._stop = stop
        self.fence = leadership.fence

    def keep_alive(self) -> None:
        if self._stop.is_set():
            raise _StoppingError
        if not self._leadership.is_valid():
            lease = self._leadership.lease
            raise LeaseLostError(f"epoch {lease.epoch} of {lease.name} could not be renewed in time")
        self._leadership.keep_alive()


class Singleton:
    """Campaigns for the task's lease and, while it leads, runs the task, in a thread of its own: ``start``, ``join``.

    ``build`` makes the task, and makes it anew where a step of the one before hangs. ``keep`` watches over a
    leadership from threads of its own until it is over (see ``runtime``), and calls what it is given where the work
    has not stopped by then; ``bus`` tells of a released lease where the database can.
    ``not_now`` says why a run has to be left out, if so.
    """

    def __init__(
        self,
        build: Callable[[], PeriodicTask],
        election: Election,
        *,
        keep: Callable[[Leadership, StopFlag, Callable[[], None]], None],
        profile: LeaseProfile,
        bus: Bus,
        clock: Clock,
        stop: StopFlag,
        not_now: Callable[[], str] = str,
        new_flag: Callable[[], StopFlag] = threading.Event,
    ) -> None:
        self.task = build()
        self._not_now = not_now
        self._build = build
        self._election = election
        self._keep = keep
        self._profile = profile
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._new_flag = new_flag
        self._said = f"{self.task.name} has not begun"
        self._hung = 0  # how many threads have been left to themselves; the one with this number is the present one
        self._leadership: Leadership | None = None
        self._thread: threading.Thread | None = None

    @property
    def status(self) -> str:
        """What this task does, and whether earlier steps of it hang."""
        return f"{self._said}; {self._hung} steps of it hung and were left to themselves" if self._hung else self._said

    @property
    def problem(self) -> Finding | None:
        """What somebody should look into: a step that hangs, or what the task says where it leads here."""
        if self._hung:
            said = f"{self._hung} steps of {self.task.name} did not end and were left to themselves"
            return Finding("step-hangs", "wrong", said, "see the log for what they wait for; restart the process")
        leads = self._leadership is not None and self._leadership.is_valid()
        return getattr(self.task, "problem", None) if leads else None

    def start(self) -> None:
        """Begin in a thread."""
        self._thread = threading.Thread(target=self.run, name=self.task.name, args=(self._hung,), daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def run(self, number: int = 0) -> None:
        """Follow or lead until the process stops, or until a step has hung in this thread, of this ``number``."""
        task = self.task
        if not task.period:
            self._said = f"{task.name} is disabled"
            return
        try:
            while not self._stop.is_set() and number == self._hung:
                try:
                    self.campaign()
                except StoreUnavailableError as exc:
                    self._say(number, f"{self.task.name} waits for the database: {exc}")
                    self._stop.wait(self._profile.poll)
        except Exception:
            _log.exception("a periodic task failed", task=self.task.name, stopping=number == self._hung)
            if number == self._hung:
                raise
        finally:
            if number == self._hung:
                self._stop.set()  # a process without one of its tasks is to be started again
            if isinstance(task, KeepsThreads):
                task.close()

    def campaign(self) -> None:
        """Try to win the lease once and lead; otherwise wait for the next election."""
        seen = self._bus.wait(Channel.LEASES, 0, 0.0)
        leadership = self._election.campaign()
        self._said = self._election.status
        if leadership is None:
            self._election.wait(self._bus, seen, self._stop)
            return
        reset, self._leadership = self._new_flag(), leadership
        self._keep(leadership, reset, lambda: self._give_up(leadership))
        try:
            self.lead(leadership, reset, self.task, self._hung)
        finally:
            leadership.resign()

    def lead(self, leadership: Leadership, reset: StopFlag, task: PeriodicTask, number: int) -> None:
        """Run the task once a period while it leads."""
        while leadership.is_valid() and not self._stop.is_set():
            try:
                self._say(number, f"{self._election.status}; {self._step(task, leadership)}")
            except LeaseLostError as exc:
                self._say(number, f"was deposed: {exc}")
                return
            except _StoppingError:
                return
            self._rest(leadership, reset)

    def _step(self, task: PeriodicTask, leadership: Leadership) -> str:
        return self._not_now() or task.step(_Step(leadership, self._stop))

    def _say(self, number: int, status: str) -> None:
        if number == self._hung:
            self._said = status

    def _give_up(self, leadership: Leadership) -> None:
        """Leave the thread of a step that hangs to itself, and campaign again in another one."""
        if leadership is not self._leadership or leadership.resigned or self._stop.is_set() or self._hung == _MOST_HUNG:
            return
        self._leadership = None
        self._hung += 1
        self.task = self._build()
        self.start()

    def _rest(self, leadership: Leadership, reset: StopFlag) -> None:
        """Wait for the next run, showing signs of life."""
        until = self._clock.monotonic() + self.task.period
        while (left := until - self._clock.monotonic()) > 0 and not self._stop.is_set():
            leadership.keep_alive()
            if reset.wait(min(left, self._profile.renew)):
                return
        leadership.keep_alive()
