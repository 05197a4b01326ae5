"""Times in answers: ISO 8601, UTC. Inside they are seconds since the epoch."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(seconds: float | None) -> str | None:
    """Return the time to the second, as both published APIs give it."""
    return None if seconds is None else datetime.fromtimestamp(int(seconds), UTC).isoformat()


def iso_exact(seconds: float | None) -> str | None:
    """Return the time to the millisecond, for timelines."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
