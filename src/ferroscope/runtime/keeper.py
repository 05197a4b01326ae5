"""Keeps a leader's lease alive from a thread of its own, and ends the process if it must.

When a leader has not stopped by the time to which it may trust its lease, nothing it does may
count any more: the process exits at once, with its own exit code, and the supervisor starts it
again. It never drains on lost leadership.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.domain.lease import LeaseProfile
from ferroscope.election import Tenure
from ferroscope.ports.clock import Clock, StopFlag
from ferroscope.ports.meter import SILENT, Meter

_log = structlog.get_logger(__name__)

EXIT_LOST_LEADERSHIP: Final = 75


def _exit() -> None:
    os._exit(EXIT_LOST_LEADERSHIP)


class LeaseKeeper:
    """Callable as ``keep(tenure, reset)``: returns at once, the thread ends with the tenure."""

    def __init__(
        self,
        profile: LeaseProfile,
        clock: Clock,
        *,
        leave: Callable[[], None] = _exit,
        new_flag: Callable[[], StopFlag] = threading.Event,
        meter: Meter = SILENT,
    ) -> None:
        self._profile = profile
        self._clock = clock
        self._leave = leave
        self._new_flag = new_flag
        self._meter = meter

    def __call__(self, tenure: Tenure, reset: StopFlag) -> None:
        # Two threads: a renewal that hangs on a dead connection must not keep the watch from its duty.
        for duty, target in (("lease", self.run), ("watch", self.watch)):
            name = f"{duty} {tenure.lease.name}"
            threading.Thread(target=target, args=(tenure, reset), name=name, daemon=True).start()

    def run(self, tenure: Tenure, reset: StopFlag) -> None:
        """Renew until the tenure is over; then tell the work, and make sure that it has ended."""
        pause = self._new_flag()
        while not tenure.over and tenure.may_act():
            left = tenure.trusted_until - self._clock.monotonic()
            pause.wait(max(0.0, min(self._profile.renew, left)))
            if not tenure.renew() and not tenure.resigned:
                self._meter.renewal_failed(tenure.lease.name)
        self._end(tenure, reset)

    def watch(self, tenure: Tenure, reset: StopFlag) -> None:
        """Wait until trust has run out, whatever renewal does; then the same."""
        pause = self._new_flag()
        while not tenure.over and (left := tenure.trusted_until - self._clock.monotonic()) > 0:
            pause.wait(left)
        self._end(tenure, reset)

    def _end(self, tenure: Tenure, reset: StopFlag) -> None:
        pause = self._new_flag()
        reset.set()
        if tenure.resigned:
            return
        pause.wait(max(0.0, tenure.trusted_until - self._clock.monotonic()))
        pause.wait(self._profile.margin / 2)
        if not tenure.resigned:
            try:
                _log.error("leadership lost and the work has not stopped; leaving", lease=tenure.lease.name)
            finally:
                self._leave()
