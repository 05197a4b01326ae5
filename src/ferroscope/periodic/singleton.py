"""A periodic task that runs on one process at a time: election, leadership and loop.

A step that fails in the database is reported, and the same leader tries again a period later.

The leader's loop waits for its own flag (``reset``), not for that of the process: losing the lease resets the task and
does not stop the service. Losing a leader costs a few runs at most.

A step that does not report progress for a lease's time to live loses its leadership only: another process leads, the
fence rejects further writes of the step, and the task campaigns again from a new thread.
Source: the HA singleton periodic task of the HA specification for ironic-inspector.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

import structlog

from ferroscope.contracts.errors import LeaseLostError, StoreError
from ferroscope.contracts.store import Bus, Channel, Clock, StopFlag
from ferroscope.contracts.telemetry import SILENT, Meter
from ferroscope.core.model import LeaseProfile
from ferroscope.core.problems import DISABLED
from ferroscope.leadership import Election, Leadership, StepLeadership, StoppingError
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.values import many

_log = structlog.get_logger(__name__)

# The most hung threads of one task that are abandoned; more would not help.
_MOST_HUNG: Final = 10
# Failed steps in a row before operators are told: one may meet a fail-over of the database.
MAX_FAILED_STEPS: Final = 3


class PeriodicTask(Protocol):
    """What a singleton runs; ``name`` is the name of its lease, ``period`` is in seconds (0: never).

    It may have an attribute ``only_fenced``. True: it changes only the database, under the fence, so a leader that
    seems dead may be replaced before its lease expires.
    """

    name: str
    period: float

    def step(self, leadership: StepLeadership) -> str:
        """Run once, for any time, reporting progress as ``StepLeadership`` requires; return a status."""


@runtime_checkable
class KeepsThreads(Protocol):
    """A task that has its own threads."""

    def close(self) -> None:
        """Start nothing new; the process is stopping, and waits for running work."""


@runtime_checkable
class Follows(Protocol):
    """A task that watches while another process leads, so that it is prepared when it takes over."""

    def follow(self) -> None:
        """Watch, and change nothing; called after each lost campaign."""


@runtime_checkable
class StopsLeading(Protocol):
    """A task that publishes something only while it leads."""

    def stop_leading(self) -> None:
        """Withdraw what was published."""


class Singleton:
    """Campaigns for the task's lease and runs the task while it leads, in a separate thread: ``start``, ``join``.

    ``build`` creates the task, and creates it again if a step hangs. ``keep`` renews a leadership from separate threads
    (see ``leadership.LeaseRenewer``), and calls its last argument if the work does not stop after it was lost. ``bus``
    announces released leases if the database supports that. ``not_now`` returns why a run must be skipped, or "".
    ``meter`` counts steps that fail.
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
        meter: Meter = SILENT,
        not_now: Callable[[], str] = str,
        new_flag: Callable[[], StopFlag] = threading.Event,
    ) -> None:
        self.task = build()
        self._meter = meter
        self._failed_steps = 0  # in a row
        self._failure = ""
        self._not_now = not_now
        self._build = build
        self._election = election
        self._keep = keep
        self._profile = profile
        self._bus = bus
        self._clock = clock
        self._stop = stop
        self._new_flag = new_flag
        self._status = f"{self.task.name} has not started"
        self._hung = 0  # number of abandoned threads; the current thread has this number
        self._leadership: Leadership | None = None
        self._thread: threading.Thread | None = None

    @property
    def status(self) -> str:
        """The task's status, including hung steps."""
        return f"{self._status}; hung and abandoned: {many(self._hung, 'step')}" if self._hung else self._status

    @property
    def problem(self) -> Finding | None:
        """The first of ``problems``, None if there is none."""
        return next(iter(self.problems), None)

    @property
    def problems(self) -> Sequence[Finding]:
        """Findings for operators: a hung step, or the task's own ones if it leads here."""
        if self._hung:
            summary = f"{self.task.name} has hung, and was abandoned in {many(self._hung, 'step')}"
            return (Finding("step-hangs", "wrong", summary, "see the log for the cause, then restart the process"),)
        if self._leadership is None or not self._leadership.is_valid():
            return ()
        if self._failed_steps >= MAX_FAILED_STEPS:
            summary = f"{self.task.name} has failed {many(self._failed_steps, 'time')} in a row: {self._failure}"
            return (Finding("step-fails", "wrong", summary, "see the log of this process, and of the database"),)
        own: Finding | None = getattr(self.task, "problem", None)
        several: Sequence[Finding] = getattr(self.task, "problems", ())
        return several if own is None else (own, *several)

    def reset(self) -> None:
        """Have the leader confirm its lease now, because a member was lost. If the lease is lost, the work stops."""
        if (leadership := self._leadership) is not None:
            leadership.confirm()

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self.run, name=self.task.name, args=(self._hung,), daemon=True)
        self._thread.start()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout)

    def run(self, number: int = 0) -> None:
        """Follow or lead until the process stops, or until a step hangs in this thread (``number``)."""
        task = self.task
        if not task.period:
            self._status = f"{task.name}{DISABLED}"
            return
        try:
            while not self._stop.is_set() and number == self._hung:
                try:
                    self.campaign()
                except StoreError as exc:
                    self._set_status(number, f"{self.task.name}: waiting for the database: {exc}")
                    self._stop.wait(self._profile.poll)
        except Exception:
            _log.exception("periodic task failed", task=self.task.name, stopping=number == self._hung)
            if number == self._hung:
                raise
        finally:
            if number == self._hung:
                self._stop.set()  # restart the process rather than run without the task
            if isinstance(task, KeepsThreads):
                task.close()

    def campaign(self) -> None:
        """Campaign once and lead if it was won; otherwise wait for the next campaign."""
        seen = self._bus.wait(Channel.LEASES, 0, 0.0)
        leadership = self._election.campaign()
        self._status = self._election.status
        if leadership is None:
            if isinstance(self.task, Follows):
                self.task.follow()
            self._election.wait(self._bus, seen, self._stop)
            return
        reset, self._leadership = self._new_flag(), leadership
        self._keep(leadership, reset, lambda: self._give_up(leadership))
        try:
            self.lead(leadership, reset, self.task, self._hung)
        finally:
            leadership.resign()
            if isinstance(self.task, StopsLeading):
                self.task.stop_leading()

    def lead(self, leadership: Leadership, reset: StopFlag, task: PeriodicTask, number: int) -> None:
        """Run the task once per period while leading.

        After ``reset`` the lease is not renewed, even if the answer to a late renewal makes it valid once more.
        """
        while leadership.is_valid() and not reset.is_set() and not self._stop.is_set():
            try:
                status = self._step(task, leadership)
                self._failed_steps = 0
            except LeaseLostError as exc:
                self._set_status(number, f"lost its lease: {exc}")
                return
            except StoppingError:
                return
            except StoreError as exc:  # in an outage, the lease ends; otherwise the step waits its period
                status = self._note_failure(str(exc))
            self._set_status(number, f"{self._election.status}; {status}")
            self._wait_for_next_run(leadership, reset)

    def _step(self, task: PeriodicTask, leadership: Leadership) -> str:
        return self._not_now() or task.step(StepLeadership(leadership, self._stop))

    def _note_failure(self, failure: str) -> str:
        """Count and report a step that failed; return the task's status."""
        self._failed_steps += 1
        self._failure = failure
        _log.warning("periodic step failed", task=self.task.name, in_a_row=self._failed_steps, why=failure)
        self._meter.record_failed_step(self.task.name)
        return f"failed: {failure}"

    def _set_status(self, number: int, status: str) -> None:
        if number == self._hung:
            self._status = status

    def _give_up(self, leadership: Leadership) -> None:
        """Abandon the thread of a hung step, and campaign again in a new one."""
        if (
            leadership is not self._leadership
            or leadership.has_resigned
            or self._stop.is_set()
            or self._hung == _MOST_HUNG
        ):
            return
        self._leadership = None
        self._hung += 1
        self.task = self._build()
        self.start()

    def _wait_for_next_run(self, leadership: Leadership, reset: StopFlag) -> None:
        """Wait for the next run, keeping the lease."""
        until = self._clock.monotonic() + self.task.period
        while (left := until - self._clock.monotonic()) > 0 and not self._stop.is_set():
            leadership.keep_alive()
            if reset.wait(min(left, self._profile.renew)):
                return
        leadership.keep_alive()
