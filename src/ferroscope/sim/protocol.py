"""The lines of the simulator's port: one JSON object each way, for BMCs and for control alike.

BMC calls: ``{"op": "get_power", "node": NAME}``, ``set_power`` with ``power`` (``power on``,
``power off``, ``rebooting``), ``set_boot_device`` with ``device`` and ``persistent``, and
``get_boot_device``. Control calls are listed in ``control``. Answers have ``ok`` true and what was
asked, or ``ok`` false with ``error`` and ``transient``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

MAX_LINE: Final = 256 * 1024


class Call(msgspec.Struct, frozen=True):
    """A line that came in; which fields matter depends on ``op``. ``timeout`` is in seconds."""

    op: str
    node: str | None = None
    power: str | None = None
    device: str | None = None
    persistent: bool = False
    names: tuple[str, ...] | None = None
    nodes: bool = True
    log: bool = False
    effect: str = ""
    at_least: int = 1
    timeout: float = 30.0
    callback_url: str = ""
    on: bool = True


class Reply(NamedTuple):
    """What to do: send ``line`` after ``delay`` seconds, or nothing at all, or hang up."""

    line: bytes | None
    delay: float = 0.0
    hang_up: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Call).decode


def read(line: bytes) -> Call:
    """Return the call in ``line``; raise ``ValueError`` with a sentence."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"a line must be a JSON object with op: {error}") from error


def write(**fields: Any) -> bytes:
    """Return an answer's line."""
    return _encode({"ok": True, **fields}) + b"\n"


def refuse(error: str, *, transient: bool = False) -> bytes:
    """Return the line of an answer that is none."""
    return _encode({"ok": False, "error": error, "transient": transient}) + b"\n"
