"""Untrusted values in messages: short, printable, of any type.

A message reaches the journal, ``last_error`` and a terminal, so that neither a megabyte nor a
control character of a ramdisk's making may pass.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Final

# reprlib looks at the first few items only, so that a huge value costs nothing.
_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 200
_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"


def shown(value: object, *, limit: int = 80, lines: bool = False) -> str:
    """Return ``value`` for a message: at most ``limit`` characters, line ends only with ``lines``."""
    text = value if isinstance(value, str) else _REPR.repr(value)
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(char if char.isprintable() or char in kept else _REPLACEMENT for char in text)


def listed(values: Iterable[object], *, limit: int = 10) -> str:
    """Return the values for a message, separated by commas: the first ``limit``, and how many more."""
    texts = [shown(value) for value in values]
    more = len(texts) - limit
    return ", ".join(texts[:limit]) + (f" and {more} more" if more > 0 else "")
