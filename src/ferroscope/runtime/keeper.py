"""Keeps a leader's lease alive from a thread of its own, and says what follows where that is lost.

When a leader has not stopped by the time to which it may trust its lease, nothing it does may count any more. What
only writes to the database is left to the fence, which refuses it: no process ends because a task of it hangs.
What has effects elsewhere knows no fence, so a gate's process exits at once, with its own exit code, and is started
again. It never drains on lost leadership.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.metrics import SILENT, Meter
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.core.model import LeaseProfile
from ferroscope.election import Tenure

_log = structlog.get_logger(__name__)

EXIT_LOST_LEADERSHIP: Final = 75


def leave_process() -> None:
    """End it at once: for whoever has effects that no fence refuses."""
    os._exit(EXIT_LOST_LEADERSHIP)


class LeaseKeeper:
    """Callable as ``keep(tenure, reset)``: returns at once, the threads end with the tenure.

    ``leave`` is called where the work has not stopped in time, by each of them.
    """

    def __init__(
        self,
        profile: LeaseProfile,
        clock: Clock,
        *,
        leave: Callable[[], None] = leave_process,
        new_flag: Callable[[], StopFlag] = threading.Event,
        meter: Meter = SILENT,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._leave = leave
        self._new_flag = new_flag
        self._meter = meter

    def __call__(self, tenure: Tenure, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        # Two threads: a renewal that hangs on a dead connection must not keep the watch from its duty.
        for duty, target in (("lease", self.run), ("watch", self.watch)):
            name = f"{duty} {tenure.lease.name}"
            threading.Thread(target=target, args=(tenure, reset, leave), name=name, daemon=True).start()

    def run(self, tenure: Tenure, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Renew until the tenure is over; then tell the work, and make sure that it has ended."""
        pause = self._new_flag()
        while not tenure.over and tenure.may_act():
            left = tenure.trusted_until - self._clock.monotonic()
            pause.wait(max(0.0, min(self._profile.renew, left)))
            if not tenure.renew() and not tenure.resigned:
                self._meter.renewal_failed(tenure.lease.name)
        self._end(tenure, reset, leave or self._leave)

    def watch(self, tenure: Tenure, reset: StopFlag, leave: Callable[[], None] | None = None) -> None:
        """Wait until trust has run out, whatever renewal does; then the same."""
        pause = self._new_flag()
        while not tenure.over and (left := tenure.trusted_until - self._clock.monotonic()) > 0:
            pause.wait(left)
        self._end(tenure, reset, leave or self._leave)

    def _end(self, tenure: Tenure, reset: StopFlag, leave: Callable[[], None]) -> None:
        pause, told = self._new_flag(), reset.is_set()
        reset.set()
        if tenure.resigned:
            return
        pause.wait(max(0.0, tenure.trusted_until - self._clock.monotonic()))
        pause.wait(self._profile.margin / 2)
        if not tenure.resigned:
            try:
                if not told:  # there are two of us
                    _log.error("leadership lost and the work has not stopped", lease=tenure.lease.name)
            finally:
                leave()
