"""Numbers in ``driver_info``: as JSON numbers, or as text, in decimal or like 0x20. Pure."""

from __future__ import annotations

import re
from typing import Final

from ferroscope.bmc.driver_info import wrong
from ferroscope.core.model import Document

_NUMBER: Final = re.compile(r"(0x[0-9a-f]{1,8}|[0-9]{1,9})\Z", re.ASCII | re.IGNORECASE)


def number(info: Document, name: str, least: int, most: int) -> int | None:
    """Return a field's number, None where it is not set; ``BmcError`` (permanent) where it is none in the range."""
    value = info.get(name)
    if value is None or value == "":
        return None
    text = str(value)
    found = None if isinstance(value, bool) or not _NUMBER.match(text) else _parsed(text)
    if found is None or not least <= found <= most:
        raise wrong(f"{name} must be a number from {least} to {most}")
    return found


def _parsed(text: str) -> int:
    return int(text, 16) if text.lower().startswith("0x") else int(text)
