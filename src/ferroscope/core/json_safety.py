"""Limits the structure of JSON, determined from its bytes before it is decoded.

Each object and array costs the decoder and the garbage collector far more than its two bytes: 16 MiB of nested lists
block a process for seconds. Counting takes 1 ms for 2 MiB and some tens of microseconds for a typical inventory. Stored
data may have been written by a release that did not count, so its readers count too.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from ferroscope.core import json_repair

# A 40 KB inventory has about 500; the largest machines have a few thousand.
MAX_CONTAINERS: Final = 50_000
# How deeply the body of a request may be nested.
MAX_DEPTH: Final = 25
# Hooks repeat parts of the data in their output.
MAX_DERIVED: Final = 4 * MAX_CONTAINERS

_STRUCTURE: Final = b'{}[]"'
_OTHER_BYTES: Final = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_MANY_ESCAPES: Final = 4096
_ONE_BRACKET: Final = bytes.maketrans(b"[]", b"{}")


class TooManyContainersError(Exception):
    """The data has too many objects and arrays to be decoded."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} objects and arrays")


def decode(raw: bytes, limit: int = MAX_CONTAINERS) -> Any:
    """Return the decoded JSON; ``TooManyContainersError``, msgspec's errors."""
    if containers_exceed(raw, limit):
        raise TooManyContainersError(limit)
    return msgspec.json.decode(raw)


def decode_clean(raw: bytes) -> Any:
    """Return the decoded data of a ramdisk as hooks and rules get it; ``TooManyContainersError``, msgspec's errors."""
    if containers_exceed(raw, MAX_CONTAINERS):
        raise TooManyContainersError(MAX_CONTAINERS)
    return json_repair.decode_clean(raw)


def containers_exceed(raw: bytes, limit: int = MAX_CONTAINERS) -> bool:
    """Whether there are more than ``limit`` objects and arrays; brackets inside strings do not count."""
    if len(raw) <= limit or raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    return _brackets(raw).count(b"{") > limit


def depth_exceeds(raw: bytes, limit: int) -> bool:
    """Whether valid JSON is nested deeper than ``limit`` objects and arrays, without decoding it."""
    if len(raw) <= 2 * limit:
        return False
    brackets = _brackets(raw)
    for _ in range(limit):
        brackets = brackets.replace(b"{}", b"")  # removes the whole innermost level
        if not brackets:
            return False
    return bool(brackets)


def _brackets(raw: bytes) -> bytes:
    """Return the brackets outside of strings, all as curly brackets."""
    if b"\\" in raw:
        raw = _without_escapes(raw)
    # Only brackets and quotes are left; a quote still toggles "inside a string".
    brackets = raw.translate(_ONE_BRACKET, _OTHER_BYTES).replace(b'""', b"")
    return b"".join(brackets.split(b'"')[::2]) if b'"' in brackets else brackets


def _without_escapes(raw: bytes) -> bytes:
    if raw.count(b"\\") < _MANY_ESCAPES:
        return _ESCAPE.sub(b"", raw)
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # slower for few escapes, but linear


# Prepares types for decoding before threads start.
#
# msgspec builds its description of a struct type at the first decoding. If two threads do that at once, one of them
# decodes with a partial description and the process crashes with SIGSEGV (seen with 0.22). A module that decodes
# structs in threads calls ``ready`` when it is imported, or keeps its own ``Decoder``.


def ready(*types: Any) -> None:
    """Have msgspec prepare these types and all types they refer to."""
    for one in types:
        msgspec.json.Decoder(one)
