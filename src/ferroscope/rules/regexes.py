"""Regular expressions that end: patterns and subjects have a greatest length, compiled patterns a greatest size,
and matching a greatest time.

A pattern of an operator may be slow on what a machine sends; with the standard library it would
hold a worker for hours.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import regex

from ferroscope.rules.errors import InvalidRuleError, RuleError
from ferroscope.rules.expansion import expansion
from ferroscope.rules.limits import MAX_EXPANSION, MAX_REGEX, MAX_SUBJECT, REGEX_SECONDS, Budget


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern; ``InvalidRuleError``."""
    if len(pattern) > MAX_REGEX:
        raise InvalidRuleError([f"the regular expression is longer than {MAX_REGEX} characters"])
    if expansion(pattern) > MAX_EXPANSION:
        raise InvalidRuleError([f"{pattern[:80]!r} repeats too much: more than {MAX_EXPANSION} steps written out"])
    try:
        return regex.compile(pattern, cache_pattern=False)
    except (RecursionError, MemoryError):
        raise InvalidRuleError([f"{pattern[:80]!r} is nested too deeply, or too large"]) from None
    except (regex.error, OverflowError, ValueError) as exc:
        raise InvalidRuleError([f"{pattern[:80]!r} is no regular expression: {exc}"]) from None


def matches(pattern: Any, value: Any, budget: Budget, *, whole: bool) -> bool:
    """Whether the pattern matches the value's text, or is found in it; ``RuleError`` where that takes too long."""
    text = value if isinstance(value, str) else str(value)
    if len(text) > MAX_SUBJECT:
        raise RuleError(f"a text of {len(text)} characters is too long for a regular expression")
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
            f"the regular expression {str(pattern)[:80]!r} took too long on this data; make it simpler"
        ) from None
    finally:
        budget.regex -= time.monotonic() - began
