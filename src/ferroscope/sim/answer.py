"""The answers of an HTTP/1.1 server, read piece by piece. Pure: bytes go in, an answer comes out.

It reads what the callback's answers need (RFC 9112): lengths, chunks, bodies up to the end of the
connection, interim answers. It is no general client, and it bounds what it keeps.
"""

from __future__ import annotations

from typing import Final

import msgspec

MAX_HEAD: Final = 64 * 1024
MAX_BODY: Final = 1024 * 1024


class MalformedError(Exception):
    """What the server sent is no HTTP answer, or is too long."""


class Answer(msgspec.Struct, frozen=True):
    """A whole answer; ``seconds`` from the request's first byte out to the answer's last byte in."""

    status: int
    body: bytes
    seconds: float = 0.0


class Head(msgspec.Struct, frozen=True):
    """Status, how the body ends (``length`` None: see ``chunked``, else at the connection's end)."""

    status: int
    length: int | None
    chunked: bool
    keep_alive: bool


class AnswerReader:
    """Reads one answer; ``head`` is known before the body is."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.leftover = b""
        self._buffer = b""
        self._body = b""

    @property
    def begun(self) -> bool:
        """Whether any byte of an answer has come."""
        return bool(self._buffer) or self.head is not None

    def feed(self, data: bytes) -> Answer | None:
        """Take more bytes; return the answer once it is whole. Raises ``MalformedError``."""
        self._buffer += data
        while self.head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                if len(self._buffer) > MAX_HEAD:
                    raise MalformedError(f"the answer's head is longer than {MAX_HEAD} bytes")
                return None
            head, self._buffer = _head(self._buffer[:end]), self._buffer[end + 4 :]
            self.head = head if head.status >= 200 else None
        return self._chunks(self.head) if self.head.chunked else self._rest(self.head)

    def end(self) -> Answer | None:
        """The connection has ended; return the answer where that completes it."""
        head = self.head
        if head is None or head.chunked or head.length is not None:
            return None
        return Answer(head.status, self._buffer)

    def _rest(self, head: Head) -> Answer | None:
        if max(len(self._buffer), head.length or 0) > MAX_BODY:
            raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")
        if head.length is None or len(self._buffer) < head.length:
            return None
        self.leftover = self._buffer[head.length :]
        return Answer(head.status, self._buffer[: head.length])

    def _chunks(self, head: Head) -> Answer | None:
        while True:
            line, found, after = self._buffer.partition(b"\r\n")
            if not found:
                return None
            size = _number(line.split(b";")[0], 16)
            if size == 0:
                return self._trailer(head, after)
            if len(self._body) + size > MAX_BODY:
                raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")
            if len(after) < size + 2:
                return None
            self._body += after[:size]
            self._buffer = after[size + 2 :]

    def _trailer(self, head: Head, after: bytes) -> Answer | None:
        while True:
            line, found, after = after.partition(b"\r\n")
            if not found:
                return None
            if not line:
                self.leftover = after
                return Answer(head.status, self._body)


def _head(text: bytes) -> Head:
    status_line, *lines = text.split(b"\r\n")
    version, _, rest = status_line.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        raise MalformedError(f"this is no HTTP answer: {status_line[:40]!r}")
    status = _number(rest[:3], 10)
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.lower()] = value.strip().lower()
    chunked = headers.get(b"transfer-encoding", b"").endswith(b"chunked")
    length = headers.get(b"content-length")
    if status < 200 or status in (204, 304):
        chunked, length = False, b"0"
    return Head(
        status=status,
        chunked=chunked,
        length=None if chunked or length is None else _number(length, 10),
        keep_alive=headers.get(b"connection") != b"close" and not version.endswith(b"1.0"),
    )


def _number(text: bytes, base: int) -> int:
    try:
        value = int(text, base)
    except ValueError:
        raise MalformedError(f"this should be a number: {text[:20]!r}") from None
    if value < 0:
        raise MalformedError(f"this should not be below zero: {text[:20]!r}")
    return value
