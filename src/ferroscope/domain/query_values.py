"""The values in queries: numbers with units, yes and no, times, and texts in all their spellings."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from ferroscope.domain.facts import Field, fold
from ferroscope.domain.vendors import spellings

_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_NUMBER: Final = re.compile(
    r"(?P<digits>-?\d+(?:\.\d+)?)(?P<unit>[kmgtp]?)(?P<binary>i?)(?P<rest>b|bps|bit/s|hz|t/s|)\Z", re.IGNORECASE
)
_YES: Final = {"yes": 1.0, "true": 1.0, "up": 1.0, "1": 1.0, "no": 0.0, "false": 0.0, "down": 0.0, "0": 0.0}


class QueryError(ValueError):
    """The query cannot be understood; ``position`` is where, counted from 0."""

    def __init__(self, message: str, position: int) -> None:
        self.position = position
        super().__init__(f"{message} (at character {position + 1})")


def number(text: str, written: str, field: Field, at: int) -> float:
    """Return the number that a field is compared with, in the field's unit; ``QueryError``."""
    if field.boolean:
        if text.lower() not in _YES:
            raise QueryError(f"{written} is yes or no, not {text[:20]}", at)
        return _YES[text.lower()]
    if field.moment:
        return _moment(text, written, at)
    match = _NUMBER.match(text)
    if match is None or len(match["digits"]) > 20:
        raise QueryError(f"{written} is compared with a number, such as 512, 25G or 1.5TiB; not {text[:20]}", at)
    base = 1024.0 if match["binary"] else 1000.0
    if match["binary"] and not match["unit"]:
        raise QueryError(f"there is no such unit: {text[:20]}", at)
    return float(match["digits"]) * base ** _UNITS[match["unit"].lower()] * field.factor


def texts(field: Field, value: str) -> tuple[str, ...]:
    """Return the texts of which a field must have one to be this value."""
    if field.own:
        return (value.lower(),)
    folded = fold(value, vendor=field.vendor)
    return spellings(folded) if field.vendor else (folded,)


def _moment(text: str, written: str, at: int) -> float:
    try:
        then = datetime.fromisoformat(text)
        return (then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise QueryError(f"{written} is compared with a time, such as 2026-01-31; not {text[:20]}", at) from None
