"""Text on a terminal: short where room is scarce, and never with a control character from elsewhere."""

from __future__ import annotations

import functools
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ferroscope.core.values import clean
from ferroscope.hardware.sources import VENDORS

__all__ = ["clean", "short"]

_MOST: Final = 60


def short(text: str, most: int = _MOST) -> str:
    """Return at the most so many characters of a text, with a mark where it goes on."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def width_of(text: str) -> int:
    """Return how many columns of a terminal the widest line of a text takes."""
    if text.isascii():
        return len(text) if "\n" not in text else max(map(len, text.split("\n")))
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def with_reason(message: str | None, reason: str | None) -> str:
    """Return a message with the code of its reason, once."""
    text, code = message or "", f" ({reason})"
    return text if not reason or code in f" {text}" else f"{text}{code}"


def many(count: int, noun: str, plural: str | None = None) -> str:
    """Return ``1 node``, ``2,000 nodes``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


# Names of PCI devices, whose ids are what a machine tells: of the host's PCI ID database where it has one.
#
# The packages pci.ids (Debian) and hwdata install it; nothing is fetched. Without it there are names of the vendors
# of NICs and GPUs alone. Its form: lines ``8086  Intel Corporation``, below each ``<tab>1563  Ethernet Controller``.

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


# Times as people read them. Answers carry ISO 8601; only tables say ``3 min ago``.

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def parse(text: str | None) -> datetime | None:
    """Return the time of an answer, None where there is none or it is no time."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def ago(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return how long ago the time of an answer was."""
    then = parse(text)
    if then is None:
        return None
    return f"{span(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))} ago"


def age(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return the time since that of an answer, for a column: ``22s``, ``5m``, ``3h``, ``12d``."""
    then = parse(text)
    if then is None:
        return None
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "m")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def span(seconds: float) -> str:
    """Return a duration in its largest fitting unit."""
    for size, name in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"
