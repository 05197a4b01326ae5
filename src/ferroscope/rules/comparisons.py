"""Comparison of values with different types.

Data keeps its types, but rules often have numbers in quotes. So a string that reads as a number equals that number, and
the string ``true`` equals true. Two strings compare as strings.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from ferroscope.rules.data import MissingDataError, RuleError

_WORDS: Final = {"true": True, "false": False}
_LONGEST: Final = 64


def equal(one: Any, other: Any) -> bool:
    """Whether both have the same meaning."""
    one, other = _alike(one, other)
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)


def ordered(compare: Callable[[Any, Any], Any], one: Any, other: Any) -> bool:
    """Return ``compare(one, other)``; ``RuleError`` if they cannot be ordered."""
    if one is None or other is None:
        raise MissingDataError("value to compare")
    one, other = _alike(one, other)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))
    if not numbers and not (isinstance(one, str) and isinstance(other, str)):
        raise RuleError(f"{_shown(one)} and {_shown(other)} cannot be ordered")
    return bool(compare(one, other))


def chain(name: str) -> Callable[[Any, Any], bool]:
    """Return an operator's comparison of two neighbors."""
    if name == "eq":
        return equal
    if name == "ne":
        return lambda one, other: not equal(one, other)
    compare = getattr(operator, name)
    return lambda one, other: ordered(compare, one, other)


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    if isinstance(one, str) and not isinstance(other, str):
        return _as(one, other), other
    if isinstance(other, str) and not isinstance(one, str):
        return one, _as(other, one)
    return one, other


def _as(text: str, like: Any) -> Any:
    """Return ``text`` converted to the type of ``like``; the text itself if it cannot be converted."""
    if isinstance(like, bool):
        return _WORDS.get(text.strip().lower(), text)
    if not isinstance(like, int | float) or len(text) > _LONGEST:
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _shown(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"
