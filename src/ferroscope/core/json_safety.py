"""How much structure JSON may have, found out from its bytes before anything is decoded.

Each object and array costs a decoder, and Python's collector after it, far more than its two bytes: 16 MiB of nested
lists stop a process for seconds. Counting takes a millisecond for 2 MiB, and some tens of microseconds for what
machines send. Data that was stored earlier may be of a release that did not count, so whoever decodes it counts too.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

# An inventory of 40 KB has about 500; the largest machines have some thousands.
MAX_CONTAINERS: Final = 50_000
# What hooks make of it has some of it more than once.
MAX_DERIVED: Final = 4 * MAX_CONTAINERS

_STRUCTURE: Final = b'{}[]"'
_OTHER_BYTES: Final = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_MANY_ESCAPES: Final = 4096
_ONE_BRACKET: Final = bytes.maketrans(b"[]", b"{}")


class TooManyContainersError(Exception):
    """The data has more objects and arrays than may be decoded."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"it has more than {limit} objects and arrays")


def decode(raw: bytes, limit: int = MAX_CONTAINERS) -> Any:
    """Return JSON decoded; ``TooManyContainersError``, msgspec's errors."""
    if containers_exceed(raw, limit):
        raise TooManyContainersError(limit)
    return msgspec.json.decode(raw)


def containers_exceed(raw: bytes, limit: int = MAX_CONTAINERS) -> bool:
    """Whether there are more objects and arrays in it than ``limit``; brackets in texts do not count."""
    if raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    return _brackets(raw).count(b"{") > limit


def depth_exceeds(raw: bytes, limit: int) -> bool:
    """Whether valid JSON is nested deeper than ``limit`` objects and arrays, without decoding it."""
    if raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    brackets = _brackets(raw)
    for _ in range(limit):
        brackets = brackets.replace(b"{}", b"")  # takes away the innermost level, all of it at once
        if not brackets:
            return False
    return bool(brackets)


def _brackets(raw: bytes) -> bytes:
    """Return the brackets outside of texts, all of them as curly ones."""
    if b"\\" in raw:
        raw = _without_escapes(raw)
    # Only brackets and quotes are left; a quote still toggles "inside a string".
    brackets = raw.translate(_ONE_BRACKET, _OTHER_BYTES).replace(b'""', b"")
    return b"".join(brackets.split(b'"')[::2]) if b'"' in brackets else brackets


def _without_escapes(raw: bytes) -> bytes:
    if raw.count(b"\\") < _MANY_ESCAPES:
        return _ESCAPE.sub(b"", raw)
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # slower to begin with, but steady


# Types that are decoded, made ready before there are threads.
#
# msgspec looks at a struct type when it is first decoded, and where two threads do that at once one of them
# decodes with what is only half filled in: the process dies of SIGSEGV (seen with 0.22). Whoever decodes
# structs in threads calls ``ready`` when its module is imported, or keeps a ``Decoder`` of its own.


def ready(*types: Any) -> None:
    """Let msgspec look at these types, and at all that they are made of."""
    for one in types:
        msgspec.json.Decoder(one)
