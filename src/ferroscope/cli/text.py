"""Text on a terminal: short where room is scarce, and never with a control character from elsewhere."""

from __future__ import annotations

from typing import Final

from ferroscope.core.values import clean

__all__ = ["clean", "short"]

_MOST: Final = 60


def short(text: str, most: int = _MOST) -> str:
    """Return at the most so many characters of a text, with a mark where it goes on."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def width_of(text: str) -> int:
    """Return how many columns of a terminal the widest line of a text takes."""
    if text.isascii():
        return len(text) if "\n" not in text else max(map(len, text.split("\n")))
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def with_reason(message: str | None, reason: str | None) -> str:
    """Return a message with the code of its reason, once."""
    text, code = message or "", f" ({reason})"
    return text if not reason or code in f" {text}" else f"{text}{code}"


def many(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 node``, ``2,000 nodes``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
