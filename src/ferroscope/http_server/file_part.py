"""A part of a file as the body of a response, which the server reads piece by piece."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from typing import BinaryIO, Final

CHUNK_BYTES: Final = 128 * 1024


class FilePart:
    """Bytes of an open file, as a WSGI application returns them; closed by ``close``, or with the object.

    ``ended`` is called when it is closed.
    """

    def __init__(self, file: BinaryIO, start: int, length: int, ended: Callable[[], None]) -> None:
        self._file = file
        self._written = os.fstat(file.fileno()).st_mtime_ns
        self._at = start
        self.left = self.length = length
        self.close = weakref.finalize(self, close, file, ended)

    def next_bytes(self) -> bytes:
        """Return the next bytes; b"" at the end, or if the file was written to."""
        data = os.pread(self._file.fileno(), min(CHUNK_BYTES, self.left), self._at) if self.left else b""
        if os.fstat(self._file.fileno()).st_mtime_ns != self._written:
            return b""
        self._at += len(data)
        self.left -= len(data)
        return data

    def readable_bytes(self) -> bytes:
        """Return the next bytes; b"" also after an error of the disk, or if it was closed."""
        try:
            return self.next_bytes()
        except (OSError, ValueError):
            return b""

    def __iter__(self) -> Iterator[bytes]:
        while data := self.next_bytes():
            yield data


def close(file: BinaryIO, ended: Callable[[], None]) -> None:
    file.close()
    ended()
