"""Explains a driver that is not enabled: other services name their drivers after vendors and programs. Pure.

Sources: the hardware types and classic drivers of Ironic, the power types of MAAS, and the BMC providers of Foreman.
"""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Final

# Driver -> parts of the names that other services have for it.
_NAME_PARTS: Final = {
    "ipmi": ("ipmi", "lanplus"),
    "redfish": ("redfish", "drac", "ilo", "irmc", "xclarity", "xcc", "openbmc"),
}


def not_enabled(driver: object, enabled: Collection[str]) -> str:
    """Return a message: the driver is not enabled, which one was probably meant, and which ones are enabled."""
    text = str(driver)[:64]
    named = [
        name for name, parts in _NAME_PARTS.items() if name in enabled and any(part in text.lower() for part in parts)
    ]
    meant = named or get_close_matches(text.lower(), enabled, n=1)
    hint = f"; did you mean {meant[0]}?" if meant else ""
    return f"driver {text!r} is not enabled{hint}; enabled drivers: {', '.join(sorted(enabled)) or 'none'}"
