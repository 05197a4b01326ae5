"""Bodies: JSON that every database, hook and client can carry, decoded into the route's type.

Refused with 400: what is not JSON, has too many objects and arrays or nests them too deep, holds a NUL character
(PostgreSQL has no such text) or half a surrogate pair, or does not fit the type. It looks at bytes as long as it can:
an inventory of 40 KB is checked in some tens of microseconds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from ferroscope.api.errors import BadRequestError
from ferroscope.core.json_safety import MAX_CONTAINERS, containers_exceed, depth_exceeds

MAX_DOCUMENT_SIZE: Final = 1024 * 1024


def decode(raw: bytes, wanted: Any, *, max_depth: int) -> Any:
    """Return ``raw`` as ``wanted``; raise ``BadRequestError`` with what is wrong and where."""
    if not raw:
        raise BadRequestError("The request needs a JSON body and has none.")
    if containers_exceed(raw):
        raise BadRequestError(f"The request body has more than {MAX_CONTAINERS} objects and arrays.")
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


def _has_nul(raw: bytes) -> bool:
    return b"\\" in raw and b"\\u0000" in raw and b"\\u0000" in raw.replace(b"\\\\", b"")


def _too_deep(limit: int) -> BadRequestError:
    return BadRequestError(f"The request body is nested too deep: more than {limit} objects and arrays within another.")


@lru_cache(maxsize=64)
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)
