"""The words for true and false that the Bare Metal service understands, wherever it takes a text for them. Pure."""

from __future__ import annotations

from typing import Final

_WORDS: Final = dict.fromkeys(("true", "1", "yes", "on", "t", "y"), True) | dict.fromkeys(
    ("false", "0", "no", "off", "f", "n"), False
)


def parse(text: str) -> bool | None:
    """Return what the word means, in capital letters or small ones; None where it is none of them."""
    return _WORDS.get(text.strip().lower())
