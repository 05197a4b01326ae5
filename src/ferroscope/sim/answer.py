"""The answers of an HTTP/1.1 server, read piece by piece: bytes go in, an answer comes out.

httptools (llhttp) reads them; what is here is when an answer is whole, and the bounds of what is kept.
"""

from __future__ import annotations

from typing import Final

import httptools
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


class AnswerReader:
    """Reads one answer, after any number of interim ones.

    ``begun``: a byte of an answer has come. Once it is whole: ``keep_alive`` says whether the connection may be used
    again, and ``more`` whether something has come after it.
    """

    def __init__(self) -> None:
        self.begun = False
        self.keep_alive = False
        self.more = False
        self._answer: Answer | None = None
        self._head_size = 0
        self._in_body = False
        self._has_end = False
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> Answer | None:
        """Take more bytes; return the answer once it is whole. Raises ``MalformedError``."""
        self.begun = True
        self._head_size += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self._answer is None:
                raise MalformedError(str(exc.__context__ or f"this is not an HTTP answer: {exc!r}")) from None
            self.more = True
        if self._head_size > MAX_HEAD and not self._in_body and self._answer is None:
            raise MalformedError(f"the answer's head is longer than {MAX_HEAD} bytes")
        return self._answer

    def end(self) -> Answer | None:
        """The connection has ended; return the answer where that completes it."""
        if not self._in_body or self._has_end:
            return None
        return Answer(self._parser.get_status_code(), bytes(self._body))

    # What follows is called by the parser.

    def on_message_begin(self) -> None:
        self.more = self._answer is not None
        self._has_end = False

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self._has_end = self._has_end or name in (b"content-length", b"transfer-encoding")
        if name == b"content-length" and int(value) > MAX_BODY:
            raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")

    def on_headers_complete(self) -> None:
        self._in_body = True
        self.keep_alive = self.keep_alive if self._answer is not None else self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            return
        self._body += data
        if len(self._body) > MAX_BODY:
            raise MalformedError(f"the answer's body is longer than {MAX_BODY} bytes")

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = False
        if status >= 200 and self._answer is None:
            self._answer = Answer(status, bytes(self._body))
