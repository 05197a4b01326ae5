"""MAC addresses in the spellings that firmware and boot loaders use, and their one stored form.

Source: the spellings seen in ramdisk inventories, and pxelinux's ``01-aa-bb-…`` form.
"""

from __future__ import annotations

import re
from typing import Final

_MAC: Final = re.compile(r"[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\Z")
NOBODYS: Final = frozenset({"00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff"})
"""What firmware says where it knows no address: many machines have them, so they tell none from another."""

_PXELINUX: Final = re.compile(r"01-(?P<mac>[0-9a-f]{2}(?:-[0-9a-f]{2}){5})\Z")


def normalize(value: object) -> str | None:
    """Return ``value`` as ``aa:bb:cc:dd:ee:ff``, or None where it is no MAC address."""
    if not isinstance(value, str) or len(value) > 20:
        return None
    text = value.lower()
    pxelinux = _PXELINUX.match(text)
    if pxelinux:
        text = pxelinux["mac"]
    return text.replace("-", ":") if _MAC.match(text) else None


def telling(value: object) -> str | None:
    """Return ``value`` as of ``normalize``, or None where it tells no machine from another."""
    address = normalize(value)
    return None if address in NOBODYS else address
