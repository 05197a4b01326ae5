"""Names of hardware for people, without what manufacturers add to them."""

from __future__ import annotations

import re
from typing import Final

# Dell's firmware appends this to the name of a model.
_ADDED: Final = re.compile(r"\s*\((?:SKU|ModelName)=.*\)\s*\Z", re.IGNORECASE)
_CPU: Final = re.compile(r"\((?:R|TM)\)|\bCPU\b|\bProcessor\b|@.*", re.IGNORECASE)
# Characters that are looked at; a machine may send any number of them.
_LONGEST: Final = 1000


def model(product: str) -> str:
    """Return the name of a model without the vendor's internal numbers."""
    return _ADDED.sub("", product[:_LONGEST]) or product


def cpu(name: str) -> str:
    """Return the name of a processor without trademarks and clock rates."""
    return " ".join(_CPU.sub(" ", name[:_LONGEST]).split()) or name
