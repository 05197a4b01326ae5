"""Serves a file from disk, whole or in part: BMCs read an ISO image in many small parts.

A request for several ranges, or with a range that cannot be parsed, gets the whole file. A HEAD
request is answered as GET would be: virtual media clients probe with it (aws/eks-anywhere#10484). Only the part
that is being sent is in memory. The server reads the next part when the client has taken the previous one.
Source: RFC 9110, sections 13 and 14.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from ferroscope.api.errors import MissingError, UnavailableError
from ferroscope.api.http.context import ApiContext
from ferroscope.api.http.route import Reply
from ferroscope.http_server.file_part import FilePart, close
from ferroscope_client.core.values import limit_key

_RANGE: Final = re.compile(r"\s*+bytes\s*+=\s*+(\d{0,18})\s*+-\s*+(\d{0,18})\s*+", re.IGNORECASE)


class ServedFile(msgspec.Struct, frozen=True):
    """A reply's body: the file at this path, of which the request may want a part."""

    path: Path


def reply_with(served: ServedFile, env: Mapping[str, Any], source: str, context: ApiContext) -> Reply:
    """Return the reply to this request of a source; ``MissingError``, ``UnavailableError`` if it cannot read now."""
    source = limit_key(source)
    if not context.access.places.take(source):
        raise UnavailableError("Too many files are being sent; try again.", {"Retry-After": "1"})
    ended = partial(context.access.places.give_back, source)
    try:
        file = served.path.open("rb", buffering=0)
    except OSError as exc:
        ended()
        raise MissingError(f"{served.path.name} cannot be read here: {exc.strerror}.") from exc
    file_status = os.fstat(file.fileno())
    if not stat.S_ISREG(file_status.st_mode):
        close(file, ended)
        raise MissingError(f"{served.path.name} is no file.")
    tag, modified = (
        f'"{file_status.st_mtime_ns:x}-{file_status.st_size:x}"',
        formatdate(int(file_status.st_mtime), usegmt=True),
    )
    headers = {"Accept-Ranges": "bytes", "ETag": tag, "Last-Modified": modified}
    start, length = 0, file_status.st_size
    status = 200
    if env.get("HTTP_IF_RANGE", tag).strip() in (tag, modified):
        part = wanted_range(env.get("HTTP_RANGE", ""), file_status.st_size)
        if part is not None and not part[1]:
            close(file, ended)
            return Reply(416, None, headers | {"Content-Range": f"bytes */{file_status.st_size}"})
        if part is not None:
            status, (start, length) = 206, part
            headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{file_status.st_size}"
    # A reader that asks for the whole file, or only for the rest of this version, cannot mix versions.
    begins = status == 200 or "HTTP_IF_RANGE" in env
    if not context.access.readers.may_read(
        source, str(served.path), tag, context.process.clock.monotonic(), begins=begins
    ):
        close(file, ended)
        raise UnavailableError(f"{served.path.name} was replaced while it was read; insert it again.")
    return Reply(status, FilePart(file, start, length, ended), headers)


def wanted_range(header: str, size: int) -> tuple[int, int] | None:
    """Return start and length of the part; length 0: there is no such part; None: the whole file is wanted."""
    match = _RANGE.fullmatch(header)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        length = min(int(match[2]), size)
        return size - length, length
    start, last = int(match[1]), int(match[2]) if match[2] else size - 1
    if match[2] and last < start:
        return None  # invalid, and so ignored
    return start, max(0, min(last, size - 1) - start + 1)
