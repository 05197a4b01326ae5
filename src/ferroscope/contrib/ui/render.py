"""Templates: HTML with every value escaped, and texts of machines made safe to display.

A host name or a serial number comes from an untrusted machine: control characters are replaced, text that changes its
direction is isolated, and long texts are cut.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from ferroscope.contrib.ui.page import STATE_KINDS
from ferroscope_client.core.values import many

FOLDER: Final = Path(__file__).parent
_MAX_TEXT_CHARACTERS: Final = 300
# Control characters, and those that reorder what stands beside them. Source: Unicode Standard Annex 9.
_HARMFUL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_BYTES_PER_GIB: Final = 2**30
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def harmless(value: Any, longest: int = _MAX_TEXT_CHARACTERS) -> str:
    """Return a text of a machine for display: cut, without characters that could mislead."""
    if value is None:
        return ""
    text = str(value)
    cut = text[: longest + 1]
    cleaned = _HARMFUL.sub("\N{REPLACEMENT CHARACTER}", cut)
    return cleaned if len(text) <= longest else cleaned[:longest] + "…"


def duration(seconds: float | None) -> str:
    """Return a duration in at most two units."""
    if seconds is None:
        return ""
    left = max(0, round(seconds))
    for size, unit in _UNITS:
        if left >= size:
            whole, rest = divmod(left, size)
            smaller = {"d": (3600, "h"), "h": (60, "min"), "min": (1, "s")}[unit]
            more = rest // smaller[0]
            return f"{whole} {unit} {more} {smaller[1]}" if more else f"{whole} {unit}"
    return f"{left} s"


def age(moment: str | None, now: float) -> str:
    """Return how long ago a time in ISO 8601 was."""
    if not moment:
        return ""
    return duration(now - datetime.fromisoformat(moment).timestamp())


def moment(text: str | None) -> str:
    """Return a time in ISO 8601 as people write it, in UTC if its zone is known; another text as it is."""
    try:
        parsed = datetime.fromisoformat(text or "")
    except ValueError:
        return text or ""
    return f"{parsed.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if parsed.tzinfo else f"{parsed:%Y-%m-%d %H:%M:%S}"


def left(ends: str, late: str, now: float) -> str:
    """Return the time until this moment; if it has passed, say that this takes longer than 95% of the others."""
    seconds = datetime.fromisoformat(ends).timestamp() - now
    if seconds >= 1:
        return duration(seconds)
    over = now - datetime.fromisoformat(late).timestamp()
    return "any moment" if over < 0 else f"late by {duration(over)}"


def size(number: Any) -> str:
    """Return a size of disks: decimal units."""
    if not isinstance(number, int | float) or number <= 0:
        return ""
    for power, unit in ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= power:
            return f"{number / power:.3g} {unit}"
    return f"{number:g} B"


def memory(number: Any) -> str:
    """Return a size of memory."""
    return f"{round(number / _BYTES_PER_GIB, 1):,g} GiB" if isinstance(number, int | float) and number > 0 else ""


def kind(state: Any) -> str:
    """Return the color of a state."""
    return STATE_KINDS.get(str(state), "idle")


def capitalized(text: str) -> str:
    """Return the text with a capital first letter, or unchanged if it begins with the name of a process."""
    return text if "@" in text.partition(" ")[0] else text[:1].upper() + text[1:]


def heading(field: str) -> str:
    """Return the name of a field as people write it."""
    return _WRITTEN.get(field, capitalized(field))


_WRITTEN: Final = {"arch": "Architecture", "bmc": "BMC", "mac": "MAC", "wwn": "WWN"}


def link(path: str, **query: Any) -> str:
    """Return a path with its query; empty values are left out."""
    parameters = {name: value for name, value in query.items() if value not in (None, "", [])}
    return f"{path}?{urlencode(parameters, doseq=True)}" if parameters else path


def lines(text: str) -> int:
    """Return how many lines a field for this text has."""
    return min(30, max(6, text.count("\n") + 2))


def combine(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return a dictionary with more entries: Jinja has no such filter of its own."""
    return values | more


TOKEN, USER, OWN, TAG = (secrets.token_hex(32) for _ in range(4))
"""Marks in a rendered page for what differs between its viewers: the token of their forms, their name, their own part,
and the ETag. They cannot be guessed, so data never contains them."""


def prepare() -> None:
    """Compile the templates of the first page that a visitor opens, which would take twice as long otherwise."""
    try:
        templates = environment()
    except ImportError:
        return
    for name in _FIRST:
        templates.get_template(name)


# Each of the others takes some milliseconds; compiling all at once would delay other visitors.
_FIRST: Final = ("base.html", "macros.html", "fleet.html", "login.html")


class Rendered:
    """Pages that were rendered a moment ago: many viewers of the same page cost little more than one.

    Ages in a page are at most a few seconds old; the script keeps them up to date.
    """

    _SECONDS: Final = 2.0
    _MOST: Final = 16
    _MAX_TEXT_CHARACTERS: Final = 256 * 1024

    def __init__(self) -> None:
        self._pages: dict[str, tuple[float, bytes]] = {}

    def get(self, key: str, moment: float, make: Callable[[], bytes]) -> bytes:
        """Return the page of this key, which ``make`` makes if there is none at this moment of a monotonic clock."""
        until, text = self._pages.get(key, (0.0, b""))
        if until <= moment:
            text = make()
            if len(self._pages) >= self._MOST:
                self._pages = {name: entry for name, entry in list(self._pages.items()) if entry[0] > moment}
            if len(self._pages) < self._MOST and len(text) <= self._MAX_TEXT_CHARACTERS:
                self._pages[key] = (moment + self._SECONDS, text)
        return text


@lru_cache(maxsize=1)
def environment() -> Any:
    """Return the templates."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: (
            harmless(value, 1_000_000) if isinstance(value, str) and not hasattr(value, "__html__") else value
        ),
    )
    shown = (harmless, duration, size, memory, kind, age, left, capitalized, heading, moment, lines, combine)
    made.filters |= {text_filter.__name__: text_filter for text_filter in shown}
    made.globals |= {"link": link, "plural": many, "static": static_path}
    return made


@lru_cache(maxsize=16)
def static_file(name: str) -> tuple[bytes, str] | None:
    """Return a file that the pages use and its ETag; None if there is none of this name."""
    if name not in ("ferroscope.css", "ferroscope.js", "icon.svg"):
        return None
    body = (FOLDER / "static" / name).read_bytes()
    return body, hashlib.sha256(body).hexdigest()[:24]


def static_path(name: str) -> str:
    """Return the path of a file; it contains the digest, so that a browser never uses one of another release."""
    file = static_file(name)
    return f"/ui/static/{name}?{file[1] if file else ''}"
