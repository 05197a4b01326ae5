"""Text for terminals: truncation, durations, PCI device names; without control characters from other sources."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import click

from ferroscope_client.core.values import clean
from ferroscope_client.hardware.names import VENDORS

__all__ = ["clean", "short"]

_MAX_CHARACTERS: Final = 60

Command = TypeVar("Command", bound=Callable[..., Any])


def short(text: str, most: int = _MAX_CHARACTERS) -> str:
    """Return a text truncated to ``most`` characters, with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether the stream is a terminal; one that was closed before the process started is None."""
    return stream is not None and not stream.closed and stream.isatty()


_PLAIN: Final = "ferroscope.plain"
_UTC: Final = "ferroscope.utc"


def _flag(key: str, explanation: str) -> Callable[[Command], Command]:
    """Return an option that may follow the group or the command, or come from FERROSCOPE_NAME."""

    def remember(context: click.Context, _: click.Parameter, value: bool) -> None:
        if value:
            context.meta[key] = True

    name = key.rpartition(".")[2]
    return click.option(
        f"--{name}", is_flag=True, callback=remember, expose_value=False, envvar=f"FERROSCOPE_{name.upper()}",
        show_envvar=True, help=explanation,
    )  # fmt: skip


plain_option = _flag(
    _PLAIN, "Print plain lines, as to a pipe, for a screen reader; nothing is redrawn. TERM=dumb does the same."
)
utc_option = _flag(_UTC, "Show times in UTC instead of the local time zone.")


def may_draw(stream: TextIO | None) -> bool:
    """Return whether text may be styled and redrawn: on a terminal, unless the user asks for plain lines."""
    context = click.get_current_context(silent=True)
    is_plain = os.environ.get("TERM") == "dumb" or (context is not None and context.meta.get(_PLAIN))
    return is_terminal(stream) and not is_plain


def width_of(text: str) -> int:
    """Return how many columns of a terminal the widest line of a text takes."""
    if text.isascii():
        return len(text) if "\n" not in text else max(map(len, text.split("\n")))
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))


def with_reason(message: str | None, reason: str | None) -> str:
    """Return a message with its reason code, unless the message contains it."""
    text, code = message or "", f" ({reason})"
    return text if not reason or code in f" {text}" else f"{text}{code}"


# Names of PCI devices, from the host's PCI ID database if it is installed; inventories contain only IDs.
#
# The packages pci.ids (Debian) and hwdata install it; nothing is downloaded. Without it, only vendors of NICs and GPUs
# have names. Its format: lines ``8086  Intel Corporation``, each followed by ``<tab>1563  Ethernet Controller``.

_FILES: Final = ("/usr/share/misc/pci.ids", "/usr/share/hwdata/pci.ids")
_MAX_NAMES_BYTES: Final = 16 * 2**20


def name(vendor: str | None, product: str | None) -> str | None:
    """Return the name of a device, with IDs for unknown parts; None if there is no vendor."""
    if not vendor:
        return None
    maker, device = _id(vendor), _id(product or "")
    names = _names()
    at = names.find(f"\n{maker}  ".encode())
    if at < 0:
        return " ".join(part for part in (VENDORS.get(maker, vendor), product) if part)
    end = _end_of_vendor(names, at + 1)
    position = names.find(f"\n\t{device}  ".encode(), at, end) if device else -1
    shown = _line(names, position + 2) if position >= 0 else product
    return " ".join(part for part in (_line(names, at + 1), shown) if part)


@functools.cache
def _names() -> bytes:
    for file in (os.environ.get("FERROSCOPE_PCI_IDS"), *_FILES):
        try:
            if file:
                with Path(file).open("rb") as stream:
                    return b"\n" + stream.read(_MAX_NAMES_BYTES)
        except OSError:
            continue
    return b""


def _id(text: str) -> str:
    return text.strip().lower().removeprefix("0x")


def _end_of_vendor(names: bytes, at: int) -> int:
    """Return the position of the next vendor: a line that starts with neither a tab nor a comment."""
    while (at := names.find(b"\n", at)) >= 0:
        at += 1
        if names[at : at + 1] not in (b"\t", b"#", b"\n"):
            return at
    return len(names)


def _line(names: bytes, at: int) -> str:
    """Return the name in the line that starts at this position with an ID."""
    end = names.find(b"\n", at)
    text = names[at : end if end >= 0 else len(names)].decode(errors="replace")
    return text.partition("  ")[2].strip()


# Readable times: responses contain ISO 8601, tables ``3 min ago`` or local time.

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))


def parse(text: str | None) -> datetime | None:
    """Return a time from a response, None if it is missing or invalid."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def moment(at: datetime | str | None) -> str | None:
    """Return a time for people, in the local time zone, or in UTC with ``--utc``: ``2026-11-20 14:42:36 UTC``.

    Other text is returned unchanged.
    """
    then = parse(at) if isinstance(at, str) else at
    if then is None:
        return at if isinstance(at, str) else None
    context = click.get_current_context(silent=True)
    zone = UTC if context is not None and context.meta.get(_UTC) else None
    return f"{then.astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def ago(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return how long ago the time in a response was."""
    then = parse(text)
    if then is None:
        return None
    return f"{span(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))} ago"


def age(text: str | None, *, now: datetime | None = None) -> str | None:
    """Return the age of a time in a response, for a column: ``22s``, ``5m``, ``3h``, ``12d``."""
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
