"""Bodies: JSON that every database, hook and client can carry, decoded into the route's type.

Refused with 400: what is not JSON, nested too deep, holds a NUL character (PostgreSQL has no such
text) or half a surrogate pair, or does not fit the type. It looks at bytes as long as it can: an
inventory of 40 KB is checked in some tens of microseconds.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError

MAX_DOCUMENT_SIZE: Final = 1024 * 1024

_STRUCTURE: Final = b'{}[]"'
_OTHER_BYTES: Final = bytes(sorted(set(range(256)) - set(_STRUCTURE)))
_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_MANY_ESCAPES: Final = 4096
_ONE_BRACKET: Final = bytes.maketrans(b"[]", b"{}")


def decode(raw: bytes, wanted: Any, *, max_depth: int) -> Any:
    """Return ``raw`` as ``wanted``; raise ``BadRequestError`` with what is wrong and where."""
    if not raw:
        raise BadRequestError("The request needs a JSON body and has none.")
    try:
        value = _decoder(wanted).decode(raw)
    except msgspec.ValidationError as exc:
        raise BadRequestError(f"The request body does not fit: {exc}. GET /openapi.json has its schema.") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise BadRequestError(f"The request body is not valid JSON in UTF-8: {exc}.") from None
    except RecursionError:
        raise _too_deep(max_depth) from None
    if _has_nul(raw):
        raise BadRequestError("The request body holds a NUL character (\\u0000), which cannot be stored; remove it.")
    if depth_exceeds(raw, max_depth):
        raise _too_deep(max_depth)
    return value


def depth_exceeds(raw: bytes, limit: int) -> bool:
    """Whether valid JSON is nested deeper than ``limit`` objects and arrays, without decoding it."""
    if raw.count(b"{") + raw.count(b"[") <= limit:
        return False
    if b"\\" in raw:
        raw = _without_escapes(raw)
    # Only brackets and quotes are left; a quote still toggles "inside a string".
    brackets = raw.translate(_ONE_BRACKET, _OTHER_BYTES).replace(b'""', b"")
    if b'"' in brackets:
        brackets = b"".join(brackets.split(b'"')[::2])
    for _ in range(limit):
        brackets = brackets.replace(b"{}", b"")  # takes away the innermost level, all of it at once
        if not brackets:
            return False
    return bool(brackets)


def _without_escapes(raw: bytes) -> bytes:
    if raw.count(b"\\") < _MANY_ESCAPES:
        return _ESCAPE.sub(b"", raw)
    return raw.replace(b"\\\\", b"").replace(b'\\"', b"")  # slower to begin with, but steady


def _has_nul(raw: bytes) -> bool:
    return b"\\" in raw and b"\\u0000" in raw and b"\\u0000" in raw.replace(b"\\\\", b"")


def _too_deep(limit: int) -> BadRequestError:
    return BadRequestError(f"The request body is nested too deep: more than {limit} objects and arrays within another.")


@lru_cache(maxsize=64)
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)
