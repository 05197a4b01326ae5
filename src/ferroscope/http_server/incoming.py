"""What a client sends, as requests: the one that is being read, and those that are complete.

httptools (llhttp) parses HTTP/1.1. Of an oversized body only the beginning is kept.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, NoReturn

import httptools

from ferroscope.http_server.limits import Limits
from ferroscope.http_server.wsgi import Request

# How much of an oversized body the application gets, to identify the sender.
BEGINNING: Final = 256 * 1024
# Bytes of a header, and its fields. Each field costs many times its own bytes, so thousands of short ones are not kept.
HEAD_BYTES: Final = 64 * 1024
MOST_FIELDS: Final = 128


class Phase(Enum):
    """What we wait for: the client in all phases but ``ANSWERING``; ``LINGERING`` discards further input."""

    IDLE = 0
    HEAD = 1
    BODY = 2
    ANSWERING = 3
    SENDING = 4
    LINGERING = 5


class Incoming:
    """Feed it with what comes, and look at ``request`` and ``complete``.

    ``came``: bytes since the last complete request, or since 1 where only the phase counts. ``entered`` is called with
    each phase that begins with what came, and its time limit; ``go_on`` where the client waits for 100 Continue.
    ``crowded``: the header that is being read is too large.
    ``decides``: the application decides from the header whether a body is to be read.
    """

    def __init__(
        self,
        limits: Limits,
        *,
        decides: bool,
        entered: Callable[[Phase, float], None],
        go_on: Callable[[], None],
    ) -> None:
        self._limits = limits
        self._decides = decides
        self._entered = entered
        self._continue = go_on
        self._parser: Any = None
        self._in_head = True
        self.crowded = False
        self.request = Request()
        self.complete: deque[Request] = deque()
        self.came = 0

    def feed(self, data: bytes) -> None:
        """Parse; ``httptools.HttpParserUpgrade``, ``httptools.HttpParserError``."""
        self.came += len(data)
        if self._parser is None:
            self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(data)

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self.request = Request()
        self._in_head = True
        self._entered(Phase.HEAD, self._limits.header_timeout)

    def on_url(self, part: bytes) -> None:
        self.request.target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return
        if len(self.request.headers) == MOST_FIELDS:
            self._refuse_header()
        self.request.headers.append((name.lower(), value))

    def _refuse_header(self) -> NoReturn:
        self.crowded = True
        raise httptools.HttpParserError("the header is too large")

    def on_headers_complete(self) -> None:
        request, parser = self.request, self._parser
        # Usually not even the body, which may have come with it, is as large.
        if self.came > HEAD_BYTES and _size(request) > HEAD_BYTES:
            self._refuse_header()
        request.method = parser.get_method().decode("latin-1")
        request.version = parser.get_http_version()
        request.keep = parser.should_keep_alive()
        self._in_head = False
        self._entered(Phase.BODY, self._limits.body_timeout)
        self.came = 1
        for name, value in request.headers:
            if name == b"content-length":
                request.length = int(value) if value.isdigit() and len(value) < 20 else sys.maxsize
            elif name == b"expect" and value.lower() == b"100-continue" and request.version == "1.1":
                request.refused = 100
            elif name == b"transfer-encoding":
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

    def on_body(self, data: bytes) -> None:
        request = self.request
        request.size += len(data)
        if request.refused:
            if request.size <= BEGINNING:
                request.body += data
            return
        request.body += data
        if request.size > self._limits.body_size:
            request.refused, request.length = 413, request.size
            del request.body[BEGINNING:]

    def on_message_complete(self) -> None:
        self.complete.append(self.request)
        self.request = Request()
        self._entered(Phase.IDLE, self._limits.idle_timeout)
        self.came = 0


def _size(request: Request) -> int:
    """Return the bytes of a header, about."""
    return len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.headers)
