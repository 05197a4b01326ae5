"""The digest of a day: what has changed since yesterday, in numbers and in words. Pure.

It is an event as the others are, which targets get that ask for it; its text can be sent to people as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

DAY: Final = 86400.0
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
# Changes that the text names.
_NAMED: Final = 20


class HardwareChange(msgspec.Struct, frozen=True, kw_only=True):
    """What an inspection found to be other than before."""

    node: str
    name: str | None = None
    text: str = ""


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """A day of the fleet. ``failures``: failed inspections by reason. ``changes`` are the newest of ``changed``.

    ``text``: the same in words, one fact a line.
    """

    since: str
    until: str
    finished: int = 0
    failures: Mapping[str, int] = {}
    created: int = 0
    discovered: int = 0
    changed: int = 0
    changes: Sequence[HardwareChange] = ()
    text: str = ""


def seconds_of(text: str) -> float | None:
    """Return the seconds after midnight of a time such as 07:00; None if it is none."""
    found = _TIME.fullmatch(text)
    return None if found is None else 3600.0 * int(found[1]) + 60.0 * int(found[2])


def day_of(now: float, at: float) -> int:
    """Return the number of the day whose digest is the newest one that is due, ``at`` seconds after midnight."""
    return int((now - at) // DAY)


def ends(day: int, at: float) -> float:
    """Return when the digest of this day is due; it is about the day before that."""
    return day * DAY + at


def in_words(digest: Digest) -> str:
    """Return the digest as a text for people."""
    failed = sum(digest.failures.values())
    lines = [f"{_many(digest.finished, 'inspection')} finished, {failed:,} failed."]
    lines += [f"  {number:,} failed: {reason}" for reason, number in digest.failures.items()]
    if digest.created or digest.discovered:
        lines.append(f"{_many(digest.created, 'machine')} enrolled, {digest.discovered:,} discovered.")
    if digest.changed:
        lines.append(f"{_many(digest.changed, 'inspection')} found other hardware:")
        lines += [f"  {one.name or one.node}: {one.text}" for one in digest.changes[:_NAMED]]
        left = digest.changed - min(len(digest.changes), _NAMED)
        lines += [f"  and {left:,} more"] if left else []
    return "\n".join(lines)


def _many(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
