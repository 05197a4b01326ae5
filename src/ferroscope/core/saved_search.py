"""Searches that users keep under a name: the same on the page, in the API and on the command line."""

from __future__ import annotations

import re
from typing import Final

import msgspec

MAX_SEARCHES: Final = 100
"""Saved searches of one user."""
NAME: Final = "1 to 64 characters, without '/' and without control characters"
"""The rule for names, for error messages."""
_NAME: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f/]{1,64}")


class SavedSearch(msgspec.Struct, frozen=True, kw_only=True):
    """``q``: the query, "" for all nodes. ``view``: order and columns of the page, as the query of its URL."""

    user: str
    name: str
    q: str = ""
    view: str = ""
    created_at: float = 0.0


def is_name(text: str) -> bool:
    """Whether this is a valid name; see ``NAME``."""
    return _NAME.fullmatch(text) is not None and text.strip() == text and text not in (".", "..")
