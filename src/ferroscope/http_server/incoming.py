"""Turns a client's bytes into requests: the one that is being read, and those that are complete.

httptools (llhttp) parses HTTP/1.1. Only the beginning of an oversized body is kept.

A proxy may read a request that violates RFC 9112 differently, and see another request in a part of it. So violations
that llhttp tolerates are refused here: the form of the request line, codings, several hosts.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NoReturn

import httptools

from ferroscope.http_server.limits import ServerLimits
from ferroscope.http_server.wsgi import ReceivedRequest

# Bytes of an oversized body that the application gets to identify the sender.
BEGINNING_BYTES: Final = 256 * 1024
# Bytes of a header, and its fields. Each field costs many times its own bytes, so thousands of short ones are not kept.
HEAD_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 128
# Each chunk costs as much processor time as some hundred bytes. A body may have the first number of chunks of any size,
# plus one chunk for each multiple of the second number of bytes.
MAX_SMALL_CHUNKS: Final = 4096
MIN_CHUNK_BYTES: Final = 32
# RFC 9112, section 3: one space between the parts. The parser checks the rest of the line.
_REQUEST_LINE: Final = re.compile(rb"[^ \r\n]++ [^ \r\n]++ HTTP/1\.[01]\r\n")
_HEAD_END: Final = b"\r\n\r\n"


class ConnectionPhase(Enum):
    """What we wait for: the client in all phases but ``ANSWERING``; ``LINGERING`` discards further input."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWERING = 3
    SENDING = 4
    LINGERING = 5


class Incoming:
    """``feed`` it with a client's bytes, and read ``request`` and ``complete``.

    ``came``: bytes since the last complete request; 1 if only the phase counts. ``entered`` is called with each phase
    that begins, and its time limit; ``go_on`` if the client waits for 100 Continue. ``status`` and ``explanation``: the
    response to a request that could not be parsed. ``decides``: the application decides from the header whether to
    read the body.
    """

    def __init__(
        self,
        limits: ServerLimits,
        *,
        decides: bool,
        entered: Callable[[ConnectionPhase, float], None],
        go_on: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._decides = decides
        self._entered = entered
        self._continue = go_on
        self._parser: Any = None
        self._in_head = True
        # The received part of the header: all of it until its first line is complete, then its last bytes.
        self._head = bytearray()
        self._has_line = False
        # Bytes of the body that are still missing; None for a body in chunks.
        self._body_left: int | None = 0
        self._chunks = 0
        self.status, self.explanation = 400, ""
        self.request = ReceivedRequest()
        self.complete: deque[ReceivedRequest] = deque()
        self.came = 0

    def feed(self, data: bytes) -> None:
        """Parse; ``httptools.HttpParserUpgrade``, ``httptools.HttpParserError``."""
        self.came += len(data)
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        while data:
            data = self._feed_head(data) if self._in_head else self._feed_body(data)

    def _feed_head(self, data: bytes) -> bytes:
        """Parse the part that belongs to the header; return the rest."""
        if not self._head:
            data = data.lstrip(b"\r\n")  # RFC 9112, section 2.2: empty lines before a request are ignored
        before = len(self._head)
        self._head += data
        if not self._has_line and self._head.find(b"\n", before) >= 0:
            if not _REQUEST_LINE.match(self._head):
                self._refuse(400, "The first line must be method, target and HTTP/1.1, with one space between them.")
            self._has_line = True
        end = self._head.find(_HEAD_END, max(0, before - len(_HEAD_END) + 1))
        if end >= 0:
            end += len(_HEAD_END) - before
            self._parser.feed_data(data[:end])
            return data[end:]
        if self._has_line:
            del self._head[: 1 - len(_HEAD_END)]
        self._parser.feed_data(data)
        return b""

    def _feed_body(self, data: bytes) -> bytes:
        """Parse the part that belongs to the body; return the rest.

        Only the parser finds the end of a body in chunks.
        """
        if self._body_left is None:
            self._parser.feed_data(data)
            return b""
        piece, rest = data[: self._body_left], data[self._body_left :]
        self._body_left -= len(piece)
        self._parser.feed_data(piece)
        return rest

    def _refuse(self, status: int, explanation: str) -> NoReturn:
        self.status, self.explanation = status, explanation
        raise httptools.HttpParserError(explanation)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if not self._head:
            # The end of the body in chunks, and this request, came in one piece: its first line cannot be checked. The
            # connection ends with the response to the other request, and a client may then repeat this one.
            self._refuse(400, "A request in the same packet as the end of a body in chunks is not accepted.")
        self.request = ReceivedRequest()
        self._entered(ConnectionPhase.HEAD, self._limits.header_timeout)

    def on_url(self, part: bytes) -> None:
        self.request.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return
        if len(self.request.headers) == MAX_FIELDS:
            self._refuse(431, "The header is too large.")
        self.request.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        request, parser = self.request, self._parser
        # Usually even the body, which may have come with it, is smaller.
        if self.came > HEAD_BYTES and _size(request) > HEAD_BYTES:
            self._refuse(431, "The header is too large.")
        request.method = parser.get_method().decode("latin-1")
        request.version = parser.get_http_version()
        request.keep = parser.should_keep_alive()
        self._in_head = self._has_line = False
        self._head.clear()
        self._body_left = self._chunks = 0
        self._entered(ConnectionPhase.BODY, self._limits.body_timeout)
        self.came = 1
        has_host = False
        for name, value in request.headers:
            if name == b"host":
                if has_host:  # RFC 9112, section 3.2; the application checks its value
                    self._refuse(400, "The request has more than one Host.")
                has_host = True
            elif name == b"content-length":
                request.length = int(value) if value.isdigit() and len(value) < 20 else sys.maxsize
                self._body_left = request.length
            elif name == b"expect" and value.lower() == b"100-continue" and request.version == "1.1":
                request.refused = 100
            elif name == b"transfer-encoding":
                self._check_coding(request, value)
                self._body_left = None
                request.undecided = self._decides
        request.undecided = request.undecided or (self._decides and bool(request.length))
        if request.length is not None and request.length > self._limits.body_size:
            request.asks, request.refused = request.refused == 100, 413
        if request.refused == 100:
            request.refused = 0
            if request.undecided:
                request.asks = True
            elif not self.complete:
                self._continue()

    def _check_coding(self, request: ReceivedRequest, value: bytes) -> None:
        """Refuse a body in another form than chunks; RFC 9112, sections 6.1 and 7."""
        if request.version == "1.0":
            self._refuse(400, "A request with HTTP/1.0 must not have Transfer-Encoding.")
        if self._body_left is None or value.strip().lower() != b"chunked":
            self._refuse(501, "The only Transfer-Encoding that is supported is: chunked.")

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > MAX_SMALL_CHUNKS + self.request.size // MIN_CHUNK_BYTES:
            self._refuse(
                400,
                f"The body has too many small chunks: {self._chunks} for {self.request.size} bytes. Send larger ones.",
            )

    def on_body(self, data: bytes) -> None:
        request = self.request
        request.size += len(data)
        if request.refused:
            if request.size <= BEGINNING_BYTES:
                request.body += data
            return
        request.body += data
        if request.size > self._limits.body_size:
            request.refused, request.length = 413, request.size
            del request.body[BEGINNING_BYTES:]

    def on_message_complete(self) -> None:
        self._in_head = True
        self.complete.append(self.request)
        self.request = ReceivedRequest()
        self._entered(ConnectionPhase.IDLE, self._limits.idle_timeout)
        self.came = 0


def _size(request: ReceivedRequest) -> int:
    """Return the approximate size of a header in bytes."""
    return len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)
