"""One call to another server: its deadline, how often it is tried, and whether its command may still be sent.

Socket time-outs limit only the silence between two bytes: a server that sends one byte a second would block a worker
forever. So when the time is over, the call's connections are shut down, which ends every wait on them: TLS handshakes,
headers, bodies. One thread does that for all calls: a timer thread for each cost more than a short call itself. A slow
server gets more time with each complete new answer, up to a bound.

Permanent errors are not tried again, above all wrong credentials: every further try may lock the account.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Final, TypeVar

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import Clock, StopFlag

T = TypeVar("T")


class DeadlineError(Exception):
    """The call's time is over."""


class Deadline:
    """``with Deadline(10.0) as deadline:``; ends the connections that are watched inside.

    ``longest``: the bound if there is ``progress``, after which there are ``seconds`` again. ``advanced`` counts it.
    """

    def __init__(self, seconds: float, longest: float = 0.0) -> None:
        self.seconds = seconds
        self.advanced = 0
        self.began = time.monotonic()
        self.end = self.began + seconds
        self._last_end = self.began + longest
        self._answered: set[str] = set()
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []

    def progress(self, read: str = "") -> None:
        """Extend the time after a complete answer: to a resource that is ``read`` for the first time, or to a command.

        A command may change a resource that was read before.
        """
        with self._lock:
            now = time.monotonic()
            if now >= self.end or read in self._answered:
                return
            if read:
                self._answered.add(read)
            else:
                self._answered.clear()
            self.advanced += 1
            self.end = max(self.end, min(self._last_end, now + self.seconds))

    def remaining(self) -> float:
        """Return the seconds left, 0 after the end."""
        return max(0.0, self.end - time.monotonic())

    def seconds_left(self) -> float:
        """Return the seconds left; ``DeadlineError`` if there are none."""
        left = self.remaining()
        if not left:
            raise DeadlineError
        return left

    @property
    def has_expired(self) -> bool:
        return not self.remaining()

    def watch(self, connection: socket.socket) -> None:
        """Shut ``connection`` down when the time is over, even if TLS has wrapped it since."""
        handle = socket.socket(fileno=os.dup(connection.fileno()))
        with self._lock:
            self._watched.append(handle)
        if time.monotonic() >= self.end:
            self.expire()

    def expire(self) -> None:
        """Shut all watched connections down; the time is over for good."""
        with self._lock:
            self.end = min(self.end, time.monotonic())
            for handle in self._watched:
                with contextlib.suppress(OSError):
                    handle.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        _current.deadline = self
        _watchdog.add(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _watchdog.remove(self)
        _current.deadline = None
        with self._lock:
            for handle in self._watched:
                handle.close()
            self._watched.clear()


class _Watchdog:
    """The thread that ends calls whose time is over. It runs while there are any, and starts with the next one.

    It wakes for the earliest end that it knew when it fell asleep. Most calls are over by then and cost nothing.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._running: set[Deadline] = set()
        self._thread: threading.Thread | None = None
        self._wakes_at = 0.0

    def add(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.add(deadline)
            if self._thread is None:
                self._wakes_at = deadline.end
                self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
                self._thread.start()
            elif deadline.end < self._wakes_at:
                self._wakes_at = deadline.end
                self._changed.notify()

    def remove(self, deadline: Deadline) -> None:
        with self._changed:
            self._running.discard(deadline)

    def _run(self) -> None:
        while expired := self._wait():
            for deadline in expired:
                deadline.expire()

    def _wait(self) -> list[Deadline]:
        """Return the calls whose time is over; none if there are no calls any more."""
        with self._changed:
            while self._running:
                self._wakes_at = min(deadline.end for deadline in self._running)
                wait = self._wakes_at - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
                    continue
                expired = [deadline for deadline in self._running if deadline.has_expired]
                self._running.difference_update(
                    expired
                )  # once is enough: a connection that is watched later is shut down at once
                return expired
            self._thread = None
            return []


class _Current(threading.local):
    deadline: Deadline | None = None


_current: Final = _Current()
_watchdog = _Watchdog()


def current_deadline() -> Deadline:
    """Return this thread's deadline; ``DeadlineError`` if there is none."""
    if _current.deadline is None:
        raise DeadlineError
    return _current.deadline


# A fence for commands to servers without fencing: it sends them only while the sender certainly has the right to.
#
# A BMC obeys any sender, and a process can be stopped at any instruction, for any time. So the transports check
# immediately before they write bytes that change something, not only when the call begins. A process that was stopped
# until its right expired gets ``TooLateError``. The kernel drops data in its send buffer when the right expires
# (TCP_USER_TIMEOUT), so a network that recovers delivers no old command.

TimeLeft = Callable[[], float]


class TooLateError(Exception):
    """The right to send has expired; nothing was sent after that."""


_fence: ContextVar[TimeLeft | None] = ContextVar("fence", default=None)


@contextlib.contextmanager
def fence_commands(time_left: TimeLeft) -> Iterator[None]:
    """Let this thread send only while ``time_left`` returns more than 0 seconds; ``TooLateError``."""
    token = _fence.set(time_left)
    try:
        check_fence()
        yield
    finally:
        _fence.reset(token)


class ClaimTerm:
    """Until when claims of this process are certainly its own: the heartbeat extends it, all threads read it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sure_between = -math.inf, -math.inf

    def extend(self, beaten_at: float, until: float) -> None:
        """Note a heartbeat. After a gap, others may have taken claims that were confirmed before it."""
        since, sure_until = self._sure_between
        self._sure_between = since if beaten_at <= sure_until else beaten_at, until

    def seconds_left(self, confirmed_at: float) -> float:
        """Return for how many seconds claims that were confirmed at that monotonic time are certainly ours, or 0."""
        since, until = self._sure_between
        return max(0.0, until - self._clock.monotonic()) if confirmed_at >= since else 0.0


def current_fence() -> TimeLeft | None:
    """Return this thread's limit, for a thread that sends on its behalf; None outside of ``fence_commands``."""
    return _fence.get()


def check_fence() -> float:
    """Return for how many seconds sending is allowed, infinity outside of ``fence_commands``; ``TooLateError``."""
    time_left = _fence.get()
    seconds = math.inf if time_left is None else time_left()
    if seconds <= 0:
        raise TooLateError
    return seconds


def guard_connection(connection: socket.socket) -> None:
    """Call immediately before writing to the TCP ``connection``; ``TooLateError``."""
    seconds = check_fence()
    if math.isfinite(seconds):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, max(1, int(seconds * 1000)))
        check_fence()


# How long this process waits for a processor: by that much, a sleeping thread wakes up late. Other processes can cause
# it, and so can threads of this process that hold the interpreter. The measuring thread runs only during a call.

_PERIOD_SECONDS: Final = 0.25
# A failed call is the process's own fault if it waited for this long, and for this share of the call.
_MIN_SECONDS: Final = 1.0
_MIN_SHARE: Final = 0.5


class ProcessorDelay:
    """The delays of the process since a call began."""

    def __init__(self) -> None:
        self._began, self._before = time.monotonic(), _meter.total

    def excuses(self) -> float:
        """Return the seconds for which the process waited, 0 if that is too short to cause a failure."""
        delay = _meter.total - self._before
        return delay if delay >= max(_MIN_SECONDS, _MIN_SHARE * (time.monotonic() - self._began)) else 0.0


class _DelayMeter:
    def __init__(self) -> None:
        self.total = 0.0
        self._lock = threading.Lock()
        self._calls = 0
        self._is_running = False

    def begin(self) -> None:
        with self._lock:
            self._calls += 1
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="processor-delay", daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._calls -= 1

    def _run(self) -> None:
        while True:
            before = time.monotonic()
            time.sleep(_PERIOD_SECONDS)
            self.total += max(0.0, time.monotonic() - before - _PERIOD_SECONDS)
            with self._lock:
                if not self._calls:
                    self._is_running = False
                    return


_meter = _DelayMeter()


@contextlib.contextmanager
def measure_delay() -> Iterator[ProcessorDelay]:
    """Measure the delays of the process during the block."""
    meter = _meter
    meter.begin()
    try:
        yield ProcessorDelay()
    finally:
        meter.end()


def _forget_threads() -> None:
    """In a forked child the threads do not exist, and their locks may be held for good."""
    global _watchdog, _meter  # new ones for a new process
    _watchdog, _meter = _Watchdog(), _DelayMeter()


os.register_at_fork(after_in_child=_forget_threads)


# Retries of transient errors: how often, with which delays, and until when.

MAX_TRIES: Final = 4
_PAUSE_SECONDS: Final = 0.25
_MAX_PAUSE_SECONDS: Final = 2.0


def call_with_retries(
    attempt: Callable[[], T],
    *,
    pauses: Iterable[float],
    is_retryable: Callable[[Exception, float], bool],
    stop: StopFlag,
) -> T:
    """Return the result of ``attempt``, which is retried after each of ``pauses`` (seconds).

    ``attempt`` must be idempotent. Its error is raised if it was the last try, if ``is_retryable`` returns false for
    the error and the next pause, or if ``stop`` is set.
    """
    for pause in pauses:
        try:
            return attempt()
        except Exception as exc:
            if not is_retryable(exc, pause) or stop.wait(pause):
                raise
    return attempt()


class Once:
    """Whether a command that must not be carried out twice has been sent: ``sent`` is set just before it is."""

    sent = False


class BmcRetries:
    """The tries of one call to a BMC, at most ``tries``.

    Answers of a BMC that needs time are not counted: it is asked until the deadline, but not before the time that it
    named. ``time_left`` returns the seconds until the deadline, 0 after it. A command that is sent ``once`` is sent
    again only if the BMC answered that it did not carry it out. Otherwise only its answer may have been lost.
    """

    def __init__(
        self, time_left: Callable[[], float], stop: StopFlag, tries: int = MAX_TRIES, once: Once | None = None
    ) -> None:
        self._time_left, self._stop, self._tries, self._once = time_left, stop, tries, once
        self._counted_errors, self._pause, self._is_doubtful = 0, _PAUSE_SECONDS, False

    def wait_after(self, error: BmcError) -> None:
        """Wait for the next try; raise the error if there is none."""
        # An earlier try may have had an effect, regardless of the answer to this one.
        error.not_done = error.not_done and not self._is_doubtful
        self._is_doubtful = not error.not_done
        self._counted_errors += error.pause is None
        seconds = max(self._pause, error.pause or 0.0)
        once = self._once
        is_lost = once is not None and once.sent and not error.not_done and error.pause is None
        is_last = is_lost or not error.again or self._counted_errors >= self._tries
        if is_last or self._time_left() <= seconds or self._stop.wait(seconds):
            raise error from None
        self._pause = min(2 * self._pause, _MAX_PAUSE_SECONDS)


def retry_after(value: str | None, date: str | None) -> float:
    """Return the seconds of a header ``Retry-After``, 0 without a valid one.

    It may be a date, which counts from the answer's own ``date``: the clocks of BMCs are often wrong.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:7])
    try:
        then = parsedate_to_datetime(text)
        now = parsedate_to_datetime(date) if date else datetime.now(UTC)
        return max(0.0, (then - now).total_seconds())
    except (ValueError, TypeError, OverflowError):  # not a date, or one without a time zone
        return 0.0


def backoff(first: float, times: int) -> list[float]:
    """Return ``times`` pauses, each twice as long as the one before."""
    return [first * 2**number for number in range(times)]
