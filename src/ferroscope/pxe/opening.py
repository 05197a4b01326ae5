"""Keeps a leader's gate open from a thread of its own, for as long as its lease can be trusted.

Reading the store may take its time, and that must not close the gate; so whoever follows the
changes only shows signs of life, without which the lease, and then the gate, comes to its end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from ferroscope.contracts.pxe_filter import GateBackend, GateError
from ferroscope.contracts.queue import Clock, StopFlag
from ferroscope.leadership import Tenure

_log = structlog.get_logger(__name__)

# A closed gate is tried so much more often than an open one is refreshed. A mechanism that counts whole seconds can
# open with a lease that was renewed just now only, and renewals have the same period: it might never see one.
_SOONER: Final = 10


class Opening:
    """One tenure's open gate; ``trouble`` says why it is not open although it might be."""

    def __init__(
        self,
        backend: GateBackend,
        tenure: Tenure,
        *,
        clock: Clock,
        period: float,
        new_flag: Callable[[], StopFlag] = threading.Event,
        new_thread: Callable[..., threading.Thread] = threading.Thread,
    ) -> None:
        self._backend = backend
        self._tenure = tenure
        self._clock = clock
        self._period = period
        self._new_flag = new_flag
        self._stop = new_flag()
        self._doubtful_until = 0.0  # an opening of which we do not know what became of it ends before that
        self._thread = new_thread(target=self._run, name="opening", daemon=True)
        self.open_until = 0.0
        self.trouble = ""

    @property
    def open(self) -> bool:
        """Whether the gate is open, as far as this process knows."""
        return self._clock.monotonic() < self.open_until

    def start(self) -> None:
        """Open it, and keep it open."""
        self._hold()
        self._thread.start()

    def end(self) -> bool:
        """Close it; whether it is closed now, by ourselves or because its time is over. Never raises."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._close():
            return True
        if not self._backend.self_closing:
            return False
        until = max(self.open_until, self._doubtful_until)
        self._new_flag().wait(max(0.0, until - self._clock.monotonic()))
        return True

    def _run(self) -> None:
        # To the end, though the lease may not be trusted for a moment: a renewal that comes late makes it good again.
        while not self._stop.wait(self._pause()):
            self._hold()

    def _pause(self) -> float:
        """Return when to refresh: while half of the opening is left, for a refresh takes its time, too.

        What a refresh adds is what the lease allows for beyond the opening before; so one that came late would be
        followed by one that comes early and adds little, and that by one that comes too late.
        """
        left = self.open_until - self._clock.monotonic()
        return max(self._period / _SOONER, min(self._period, left / 2))

    def _hold(self) -> None:
        if not self._tenure.may_act():
            return
        try:
            self.open_until = self._backend.hold(self._tenure.trusted_until)
            self.trouble = ""
        except Exception as exc:  # noqa: BLE001  # whatever it is: nobody else would hear of it
            self._doubtful_until = self._tenure.trusted_until
            self._say(_log.warning, "the gate could not be held open; it closes", exc)

    def _close(self) -> bool:
        try:
            self._backend.close()
        except Exception as exc:  # noqa: BLE001  # the time-out may still close it, so its end has to be waited for
            self._say(_log.error, "the gate could not be closed", exc)
            return False
        self.open_until = 0.0
        return True

    def _say(self, log: Callable[..., object], what: str, exc: Exception) -> None:
        """Log trouble that is new, with a traceback where the backend does not know it."""
        before, self.trouble = self.trouble, str(exc) or type(exc).__name__
        if self.trouble != before:
            unknown = None if isinstance(exc, GateError) else exc
            log(what, backend=self._backend.name, error=self.trouble, exc_info=unknown)
