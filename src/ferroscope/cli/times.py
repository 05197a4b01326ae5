"""Times as people read them. Answers carry ISO 8601; only tables say ``3 min ago``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def parse(text: str | None) -> datetime | None:
    """Return the time of an answer, None where there is none or it is no time."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def ago(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return how long ago the time of an answer was."""
    then = parse(text)
    if then is None:
        return None
    return f"{span(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))} ago"


def age(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return the time since that of an answer, for a column: ``22s``, ``5m``, ``3h``, ``12d``."""
    then = parse(text)
    if then is None:
        return None
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def span(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
