"""Comparison of values with different types, and regular expressions with limits.

Data keeps its types, but rules often have numbers in quotes. So a string that reads as a number equals that number, and
the string ``true`` equals true. Two strings compare as strings.
"""

from __future__ import annotations

import operator
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import regex

from ferroscope.rules.data import (
    MAX_EXPANSION,
    MAX_REGEX,
    MAX_SUBJECT,
    REGEX_SECONDS,
    Budget,
    InvalidRuleError,
    MissingDataError,
    RuleError,
)

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


# Regular expressions with limits: the length of pattern and subject, the size of the compiled pattern, and the time for
# matching.
#
# An operator's pattern may be slow on data of a machine; with the standard library, it could block a worker for hours.


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern; ``InvalidRuleError``."""
    if len(pattern) > MAX_REGEX:
        raise InvalidRuleError([f"the regular expression is longer than {MAX_REGEX} characters"])
    if expansion(pattern) > MAX_EXPANSION:
        raise InvalidRuleError([f"{pattern[:80]!r} repeats too much: it expands to more than {MAX_EXPANSION} steps"])
    try:
        return regex.compile(pattern, cache_pattern=False)
    except (RecursionError, MemoryError):
        raise InvalidRuleError([f"{pattern[:80]!r} is nested too deeply, or too large"]) from None
    except (regex.error, OverflowError, ValueError) as exc:
        raise InvalidRuleError([f"invalid regular expression {pattern[:80]!r}: {exc}"]) from None


def matches(pattern: Any, value: Any, budget: Budget, *, whole: bool) -> bool:
    """Whether the pattern matches the value's text, wholly or in part; ``RuleError`` if that takes too long."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_SUBJECT:
        raise RuleError(f"a string of {len(text)} characters is too long for a regular expression")
    try:
        expression = compiled(str(pattern))
    except InvalidRuleError as exc:
        raise RuleError(str(exc)) from None
    began = time.monotonic()
    try:
        match = expression.fullmatch if whole else expression.search
        return match(text, timeout=min(REGEX_SECONDS, max(budget.regex, 0.001))) is not None
    except TimeoutError:
        raise RuleError(
            f"the regular expression {str(pattern)[:80]!r} took too long on this data; simplify it"
        ) from None
    finally:
        budget.regex -= time.monotonic() - began


# With (?x), the library also ignores blanks and comments within a count.
_SKIP: Final = r"(?:\s|\#[^\n]*\n)*+"
_NUMBER: Final = rf"((?:[0-9]{_SKIP})*+)"
_COUNT: Final = rf"\{{{_SKIP}{_NUMBER}(?:(,){_SKIP}{_NUMBER})?\}}"
_SET: Final = r"\[\^?\]?(?:\\.|\[:[^:\]]*:\]|[^\]\\])*\]?"
_TOKEN: Final = re.compile(rf"\\.|\(\?\#[^)]*\)?|{_SET}|{_COUNT}|.", re.DOTALL)
_TIMES: Final = re.compile(rf"\+|{_COUNT}")
# With these flags the library reads blanks, comments and sets in another way than _TOKEN does.
_OTHER_SYNTAX: Final = re.compile(r"\(\?[a-zA-Z0-9-]*(?:x|V1)")


def expansion(pattern: str) -> int:
    """Return an upper bound of the number of steps in the compiled pattern.

    The library expands repetitions: ``a{1000}`` is a thousand steps, ``(a{1000}){1000}`` a million, and ``+`` doubles
    what it repeats. Compiling holds the interpreter lock, so neither a time limit nor another thread could stop it.
    """
    return _flat(pattern) if _OTHER_SYNTAX.search(pattern) else _nested(pattern)


def _nested(pattern: str) -> int:
    """Follow the groups; a repeated part counts as often as its minimum."""
    groups: list[int] = []
    total = last = 0
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        if text == "(":
            groups.append(total + last)
            total, last = 0, 1
        elif text == ")":
            total, last = (groups.pop() if groups else 0), total + last
        elif (times := _times(token)) != 1:
            last *= times
        else:
            total, last = total + last, 1
    return sum(groups) + total + last


def _flat(pattern: str) -> int:
    """Multiply all repetitions, as if each applied to the whole pattern: an upper bound for any syntax."""
    size = len(pattern)
    for found in _TIMES.finditer(pattern):
        size *= _times(found)
    return size


def _times(token: re.Match[str]) -> int:
    """Return how often the token repeats the part before it; 1 if it is not a repetition."""
    if token.group() == "+":
        return 2
    if token.group(1) is None:
        return 1
    least, most = (int("".join(re.findall("[0-9]", part or ""))[:12] or 0) for part in token.group(1, 3))
    exactly = token.group(2) is None or least == most
    return max(1, least if exactly else least + 1)
