"""Trying again what may pass: how often and how long apart a driver asks a BMC, within one deadline.

Only what is transient is tried again, and only while there is time; what is permanent (wrong
credentials above all, where every further try brings the lock-out nearer) is raised at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from ferroscope.ports.clock import StopFlag
from ferroscope.ports.errors import BmcError

T = TypeVar("T")

PAUSES: Final = (0.25, 0.5, 1.0)


def until_it_works(attempt: Callable[[], T], left: Callable[[], float], stop: StopFlag) -> T:
    """Return what ``attempt`` returns, which is called four times at the most; raise its last ``BmcError``.

    ``attempt`` must be harmless to repeat. ``left`` returns the seconds until the deadline, 0 after it;
    ``stop`` ends the pauses, and the tries with them.
    """
    for pause in PAUSES:
        try:
            return attempt()
        except BmcError as exc:
            if not exc.transient or left() <= pause or stop.wait(pause):
                raise
    return attempt()
