"""Names of PCI devices, whose ids are what a machine tells: of the host's PCI ID database where it has one.

The packages pci.ids (Debian) and hwdata install it; nothing is fetched. Without it there are names of the vendors
of NICs and GPUs alone. Its form: lines ``8086  Intel Corporation``, below each ``<tab>1563  Ethernet Controller``.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Final

from ferroscope.hardware.sources import VENDORS

_FILES: Final = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_LONGEST: Final = 16 * 2**20


def name(vendor: str | None, product: str | None) -> str | None:
    """Return what a device is called, with the id of what has no name here; None where nothing is known."""
    if not vendor:
        return None
    maker, device = _id(vendor), _id(product or "")
    names = _names()
    at = names.find(f"\n{maker}  ".encode())
    if at < 0:
        return " ".join(part for part in (VENDORS.get(maker, vendor), product) if part)
    end = _end_of_vendor(names, at + 1)
    found = names.find(f"\n\t{device}  ".encode(), at, end) if device else -1
    shown = _line(names, found + 2) if found >= 0 else product
    return " ".join(part for part in (_line(names, at + 1), shown) if part)


@functools.cache
def _names() -> bytes:
    for file in (os.environ.get("FERROSCOPE_PCI_IDS"), *_FILES):
        try:
            if file:
                with Path(file).open("rb") as stream:
                    return b"\n" + stream.read(_LONGEST)
        except OSError:
            continue
    return b""


def _id(text: str) -> str:
    return text.strip().lower().removeprefix("0x")


def _end_of_vendor(names: bytes, at: int) -> int:
    """Return where the next vendor begins: a line that begins with neither a tab nor a comment."""
    while (at := names.find(b"\n", at)) >= 0:
        at += 1
        if names[at : at + 1] not in (b"\t", b"#", b"\n"):
            return at
    return len(names)


def _line(names: bytes, at: int) -> str:
    """Return the name in the line that begins here with an id."""
    end = names.find(b"\n", at)
    text = names[at : end if end >= 0 else len(names)].decode(errors="replace")
    return text.partition("  ")[2].strip()
