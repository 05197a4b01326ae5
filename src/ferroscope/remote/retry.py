"""Trying again what may pass: how often and how long apart, while there is hope, until the process shall stop.

What is permanent (wrong credentials above all, where every further try brings the lock-out nearer)
is raised at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from ferroscope.contracts.errors import BmcError
from ferroscope.contracts.queue import StopFlag

T = TypeVar("T")

TRIES: Final = 4
_PAUSE: Final = 0.25


def until_it_works(
    attempt: Callable[[], T], *, pauses: Iterable[float], hope: Callable[[Exception, float], bool], stop: StopFlag
) -> T:
    """Return what ``attempt`` returns, which is called once more after each of ``pauses`` (seconds).

    ``attempt`` must be harmless to repeat. Its error is raised where it is the last one, where ``hope`` says so of
    it and of the pause that would follow, or where ``stop`` is set.
    """
    for pause in pauses:
        try:
            return attempt()
        except Exception as exc:
            if not hope(exc, pause) or stop.wait(pause):
                raise
    return attempt()


def while_there_is_time(attempt: Callable[[], T], left: Callable[[], float], stop: StopFlag, tries: int = TRIES) -> T:
    """Return what ``attempt`` returns, which asks a BMC, at most ``tries`` times; its last ``BmcError``.

    ``left`` returns the seconds until the deadline, 0 after it.
    """

    def hope(error: Exception, pause: float) -> bool:
        return isinstance(error, BmcError) and error.transient and left() > pause

    return until_it_works(attempt, pauses=doubled(_PAUSE, tries - 1), hope=hope, stop=stop)


def doubled(first: float, times: int) -> list[float]:
    """Return so many pauses, each twice as long as the one before."""
    return [first * 2**number for number in range(times)]
