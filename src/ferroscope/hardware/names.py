"""Readable names of hardware, without the additions of manufacturers."""

from __future__ import annotations

import re
from typing import Any, Final

from ferroscope.core.values import is_name

# Dell's firmware appends this to the name of a model.
_ADDED: Final = re.compile(r"\((?:SKU|ModelName)=", re.IGNORECASE)
_CPU: Final = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|\b\d+-Core\b|@.*", re.IGNORECASE)
_NO_LETTERS: Final = re.compile(r"[^A-Za-z0-9._~]+")
_MAX_NAME_CHARACTERS: Final = 63
# The most characters that are read; a machine may send any number.
_MAX_READ_CHARACTERS: Final = 1000


def model(product: str) -> str:
    """Return the name of a model without the vendor's internal numbers."""
    name = product[:_MAX_READ_CHARACTERS]
    added = _ADDED.search(name) if name.rstrip().endswith(")") else None
    return (name[: added.start()].rstrip() if added else name) or product


def cpu(name: str) -> str:
    """Return the name of a processor without trademarks, clock rates and numbers of cores."""
    return " ".join(_CPU.sub(" ", name[:_MAX_READ_CHARACTERS]).split()) or name


def suggestion(serial: Any) -> str | None:
    """Return a name for a node, from the serial number of its machine; None if it is unknown, or only zeros."""
    name = _NO_LETTERS.sub("-", str(serial or "")[:_MAX_READ_CHARACTERS]).strip("-.").lower()[:_MAX_NAME_CHARACTERS]
    return name if len(set(name)) > 1 and is_name(name) else None
