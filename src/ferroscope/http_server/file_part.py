"""A part of a file as the body of a response, which the server reads piece by piece."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from threading import BoundedSemaphore
from typing import BinaryIO, Final

CHUNK: Final = 128 * 1024


class FilePart:
    """Bytes of an open file, as a WSGI application returns them; closed by ``close``, or with the object."""

    def __init__(self, file: BinaryIO, start: int, length: int, turns: BoundedSemaphore) -> None:
        self._file = file
        self._at = start
        self.left = self.length = length
        self.close = weakref.finalize(self, close, file, turns)

    def next_bytes(self) -> bytes:
        """Return the next bytes; b"" at the end, or if the file has become shorter."""
        data = os.pread(self._file.fileno(), min(CHUNK, self.left), self._at) if self.left else b""
        self._at += len(data)
        self.left -= len(data)
        return data

    def __iter__(self) -> Iterator[bytes]:
        while data := self.next_bytes():
            yield data


def close(file: BinaryIO, turns: BoundedSemaphore) -> None:
    file.close()
    turns.release()
