"""Passwords of BMCs: which are valid, how far a change is, and references to those that are kept elsewhere. Pure."""

from __future__ import annotations

import itertools
import secrets
import string
from enum import StrEnum
from typing import Any, Final

from ferroscope_client.core.values import MASK

REFERENCE: Final = "secret://"


def is_reference(value: Any) -> bool:
    """Whether the value names a secret that is stored elsewhere."""
    return isinstance(value, str) and value.startswith(REFERENCE)


MIN_CHARACTERS: Final = 8
MAX_CHARACTERS: Final = 128


class PasswordProgress(StrEnum):
    """How far a change is. ``UNCLEAR``: the BMC may have either password, and both are kept."""

    NONE = "none"
    CHANGING = "changing"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    UNCLEAR = "unclear"


def problem(password: str) -> str | None:
    """Return why no BMC should get this password, None if it is valid. A BMC reports its own demands itself."""
    if not MIN_CHARACTERS <= len(password) <= MAX_CHARACTERS:
        return f"it must have {MIN_CHARACTERS} to {MAX_CHARACTERS} characters"
    if not all("!" <= sign <= "~" for sign in password):
        return "use only ASCII letters, digits and punctuation: BMCs differ in what else they accept"
    return "it is the mask of a password" if set(password) == set(MASK) else None


_LETTERS: Final = "".join(sign for sign in string.ascii_letters if sign not in "IOl")
# Most BMCs accept these as special characters. None has a meaning in shells, URLs, JSON or XML.
_CLASSES: Final = (
    "".join(sign for sign in _LETTERS if sign.islower()),
    "".join(sign for sign in _LETTERS if sign.isupper()),
    "23456789",
    "-_.",
)
GENERATED_CHARACTERS: Final = 16
"""The default length: the longest that IPMI 1.5 and BMCs with only 16 bytes keep."""


def generate(length: int = GENERATED_CHARACTERS) -> str:
    """Return a random password with characters of each class.

    It begins with a letter, and no character is repeated in a row.
    """
    signs = "".join(_CLASSES)
    while True:
        password = "".join(secrets.choice(signs) for _ in range(length))
        in_a_row = any(first == second for first, second in itertools.pairwise(password))
        if password[0].isalpha() and not in_a_row and all(set(password) & set(sign_class) for sign_class in _CLASSES):
            return password
