"""Whether the calls of this process can be written to the database now; known from the calls themselves.

Nothing is written to find it out, so whoever asks, however often, costs the database nothing.
"""

from __future__ import annotations

from typing import Final, Protocol

# Seconds for which a process counts as unable to write after a call that could not be; then it is given another call.
_SUSPECT: Final = 5.0


class CanWrite(Protocol):
    """Whether this process has recently written its heartbeat; ``at_once``: whether it has written the last one."""

    def __call__(self, *, at_once: bool = False) -> bool: ...


class Writes:
    """What the last calls that change something say of the database. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._failed_at: float | None = None

    def succeeded(self) -> None:
        self._failed_at = None

    def failed(self, now: float) -> None:
        """The database could not be written."""
        self._failed_at = now

    def fail(self, now: float) -> bool:
        """Return whether the last call could not be written, a moment ago."""
        failed_at = self._failed_at
        return failed_at is not None and now - failed_at < _SUSPECT
