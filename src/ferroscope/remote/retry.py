"""Retries of transient errors: how often, with which delays, and until when.

Permanent errors are raised at once, above all wrong credentials: every further try may lock the account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypeVar

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.store import StopFlag

T = TypeVar("T")

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
