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
_MAX_NUMBER_CHARACTERS: Final = 64


def equal(left: Any, right: Any) -> bool:
    """Whether both have the same meaning."""
    left, right = _convert_alike(left, right)
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)


def compare_ordered(compare: Callable[[Any, Any], Any], left: Any, right: Any) -> bool:
    """Return ``compare(left, right)``; ``RuleError`` if they cannot be ordered."""
    if left is None or right is None:
        raise MissingDataError("value to compare")
    left, right = _convert_alike(left, right)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (left, right))
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise RuleError(f"{_describe(left)} and {_describe(right)} cannot be ordered")
    return bool(compare(left, right))


def chain(name: str) -> Callable[[Any, Any], bool]:
    """Return an operator's comparison of two neighbors."""
    if name == "eq":
        return equal
    if name == "ne":
        return lambda left, right: not equal(left, right)
    compare = getattr(operator, name)
    return lambda left, right: compare_ordered(compare, left, right)


def _convert_alike(left: Any, right: Any) -> tuple[Any, Any]:
    if isinstance(left, str) and not isinstance(right, str):
        return _convert_like(left, right), right
    if isinstance(right, str) and not isinstance(left, str):
        return left, _convert_like(right, left)
    return left, right


def _convert_like(text: str, like: Any) -> Any:
    """Return ``text`` converted to the type of ``like``; the text itself if it cannot be converted."""
    if isinstance(like, bool):
        return _WORDS.get(text.strip().lower(), text)
    if not isinstance(like, int | float) or len(text) > _MAX_NUMBER_CHARACTERS:
        return text
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _describe(value: Any) -> str:
    return f"{type(value).__name__} {str(value)[:40]!r}"
