"""Parsing of HTTP/1.1 responses: bytes in, a response out.

httptools (llhttp) parses them; this code determines when a response is complete, and limits its size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import httptools
import msgspec

MAX_HEAD: Final = 64 * 1024


class MalformedError(Exception):
    """The server's response is not valid HTTP, or is too long."""


class TooLongError(MalformedError):
    """The response's body is longer than allowed."""


class Answer(msgspec.Struct, frozen=True):
    """A complete response, the body of which was read; names of headers in lower case are found."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class AnswerReader:
    """Reads one response, whose body has ``most`` bytes at most, after any number of interim ones.

    ``begun``: a byte of a response has arrived. Once it is complete: ``keep_alive`` says whether the connection can be
    reused, and ``more`` whether further bytes followed.
    """

    def __init__(self, most: int) -> None:
        self.begun = False
        self.keep_alive = False
        self.more = False
        self._most = most
        self._answer: Answer | None = None
        self._headers: dict[str, str] = {}
        self._head_size = 0
        self._in_body = False
        self._body = bytearray()
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> Answer | None:
        """Process more bytes; return the response once it is complete. ``MalformedError``."""
        self.begun = True
        self._head_size += 0 if self._in_body else len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as exc:
            if self._answer is None:
                if isinstance(exc.__context__, TooLongError):
                    raise exc.__context__ from None
                raise MalformedError(f"invalid HTTP response: {exc!r}") from None
            self.more = True
        if self._head_size > MAX_HEAD and not self._in_body and self._answer is None:
            raise MalformedError(f"the response's head is longer than {MAX_HEAD} bytes")
        return self._answer

    def end(self) -> Answer | None:
        """The connection was closed; return the response if that completes it."""
        if not self._in_body or "content-length" in self._headers or "transfer-encoding" in self._headers:
            return None
        return Answer(self._parser.get_status_code(), self._headers, bytes(self._body))

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        self.more = self._answer is not None
        if self._answer is None:
            self._headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._answer is not None:
            return
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text
        if key == "content-length" and int(value) > self._most:
            raise self._too_long()

    def on_headers_complete(self) -> None:
        self._in_body = True
        self.keep_alive = self.keep_alive if self._answer is not None else self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        if self._answer is not None:
            return
        self._body += data
        if len(self._body) > self._most:
            raise self._too_long()

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        self._in_body = False
        if status >= 200 and self._answer is None:
            self._answer = Answer(status, self._headers, bytes(self._body))

    def _too_long(self) -> TooLongError:
        return TooLongError(f"the response's body is longer than {self._most} bytes")
