"""Retries of transient errors: how often, with which delays, and until when.

Permanent errors are raised at once, above all wrong credentials: every further try may lock the account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import StopFlag

T = TypeVar("T")

TRIES: Final = 4
_PAUSE: Final = 0.25


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


def retry_bmc_call(attempt: Callable[[], T], left: Callable[[], float], stop: StopFlag, tries: int = TRIES) -> T:
    """Return the result of ``attempt``, a call to a BMC, tried at most ``tries`` times; its last ``BmcError``.

    ``left`` returns the seconds until the deadline, 0 after it.
    """

    def is_retryable(error: Exception, pause: float) -> bool:
        return isinstance(error, BmcError) and error.transient and left() > pause

    doubtful = False

    def tried() -> T:
        nonlocal doubtful
        try:
            return attempt()
        except BmcError as exc:
            # An earlier try may have had an effect, whatever the BMC says to this one.
            exc.not_done = exc.not_done and not doubtful
            doubtful = not exc.not_done
            raise

    return call_with_retries(tried, pauses=backoff(_PAUSE, tries - 1), is_retryable=is_retryable, stop=stop)


def backoff(first: float, times: int) -> list[float]:
    """Return ``times`` pauses, each twice as long as the one before."""
    return [first * 2**number for number in range(times)]
