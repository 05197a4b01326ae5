"""How large a regular expression becomes when it is compiled, told before it is.

The library writes out what must be there: ``a{1000}`` is a thousand steps, ``(a{1000}){1000}`` a million,
and a ``+`` doubles what it repeats. Compiling holds the interpreter, so neither a time limit nor
another thread could end it. What is told here is never too small, and may be somewhat too large.
"""

from __future__ import annotations

import re
from typing import Final

# The library skips blanks and comments also within a count where (?x) is set.
_SKIP: Final = r"(?:\s|\#[^\n]*\n)*+"
_NUMBER: Final = rf"((?:[0-9]{_SKIP})*+)"
_COUNT: Final = rf"\{{{_SKIP}{_NUMBER}(?:(,){_SKIP}{_NUMBER})?\}}"
_SET: Final = r"\[\^?\]?(?:\\.|\[:[^:\]]*:\]|[^\]\\])*\]?"
_TOKEN: Final = re.compile(rf"\\.|\(\?\#[^)]*\)?|{_SET}|{_COUNT}|.", re.DOTALL)
_TIMES: Final = re.compile(rf"\+|{_COUNT}")
# With these the library reads blanks, comments and sets in another way than _TOKEN does.
_OTHER_SYNTAX: Final = re.compile(r"\(\?[a-zA-Z0-9-]*(?:x|V1)")


def expansion(pattern: str) -> int:
    """Return an upper bound of the steps that the compiled pattern has."""
    return _flat(pattern) if _OTHER_SYNTAX.search(pattern) else _nested(pattern)


def _nested(pattern: str) -> int:
    """Follow the groups: what is repeated counts as often as it must be there."""
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
    """Take each repetition for one of everything, which no reading of the pattern exceeds."""
    size = len(pattern)
    for found in _TIMES.finditer(pattern):
        size *= _times(found)
    return size


def _times(token: re.Match[str]) -> int:
    """Return how often the token has what is before it written out; 1 where it is no repetition."""
    if token.group() == "+":
        return 2
    if token.group(1) is None:
        return 1
    least, most = (int("".join(re.findall("[0-9]", part or ""))[:12] or 0) for part in token.group(1, 3))
    exactly = token.group(2) is None or least == most
    return max(1, least if exactly else least + 1)
