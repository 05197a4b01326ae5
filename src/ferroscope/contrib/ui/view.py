"""The browser's settings for the list of machines: its columns, and the number of machines on a page.

They are a cookie of the browser, not of the user: people want different columns on a phone than on a large screen, and
without logins there are no users.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

import msgspec

NAME: Final = "ferroscope-list"
COOKIE_SECONDS: Final = 365 * 86400
SIZES: Final = (25, 50, 100, 250)
_DEFAULT_SIZE: Final = 100
_WRITTEN: Final = re.compile(r"([a-z.]{0,400})~(\d{2,3})\Z")


class View(msgspec.Struct, frozen=True):
    """Without ``columns``: those that fit the search."""

    columns: tuple[str, ...] = ()
    size: int = _DEFAULT_SIZE

    @property
    def written(self) -> str:
        """The value of the cookie."""
        return f"{'.'.join(self.columns)}~{self.size}"


def size_of(text: str) -> int:
    """Return one of ``SIZES``."""
    return next((size for size in SIZES if str(size) == text), _DEFAULT_SIZE)


def read(written: str, columns: Collection[str]) -> View:
    """Return the view of a cookie, without columns that are not known."""
    match = _WRITTEN.match(written)
    if match is None:
        return View()
    return View(tuple(name for name in match[1].split(".") if name in columns), size_of(match[2]))
