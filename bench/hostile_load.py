"""The load process of ``hostile``: a crowd of clients, and a BMC that answers everything with garbage."""

from __future__ import annotations

import contextlib
import gzip
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final

from bench.hostile_bodies import repeated
from bench.hostile_client import send
from bench.load_process import serve

# The answer of the BMC to a request is made of pieces.

_ANSWER_BYTES: Final = 4 * 1024 * 1024 - 1000


def _reply(body: bytes, status: int = 200, header: str = "") -> Iterator[bytes]:
    head = f"HTTP/1.1 {status} Answer\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{header}"
    yield head.encode() + b"Connection: close\r\n\r\n" + body


def _endless(piece: bytes, pause: float = 0.0) -> Iterator[bytes]:
    yield b"HTTP/1.1 200 OK\r\n" + (b"Content-Length: 100000\r\n\r\n" if pause else b"")
    while True:
        yield piece
        time.sleep(pause)


def _circle() -> Iterator[bytes]:
    yield from _reply(b"", 302, f"Location: /redfish/v1/{random.randrange(3)}\r\n")


def _list(unit: bytes, most: int = _ANSWER_BYTES, octets: int = _ANSWER_BYTES) -> bytes:
    return b'{"error":{"code":"x","message":"y","@Message.ExtendedInfo":[%s]}}' % repeated(unit, most, octets)


def _bomb() -> bytes:
    return gzip.compress(bytes(100 * 1024 * 1024)) * 20


def _system() -> bytes:
    member = b'{"@odata.id":"/redfish/v1/Systems/1"}'
    named = b'"Id":"1","Name":"x","RedfishVersion":"1.6.0","Systems":{"@odata.id":"/redfish/v1/Systems"},'
    return b'{%s"PowerState":"On","Members":[%s]}' % (named, repeated(member, 49_000))


BMC_ANSWERS: Final[dict[str, Callable[[], Iterator[bytes]]]] = {
    "30 KB of quotes": lambda: _reply(b'{"a":"' + b'\\"' * 15_000),
    "1.5 MB of 1e308": lambda: _reply(_list(b"1e308", octets=1_500_000)),
    "4 MB of slow numbers": lambda: _reply(_list(b"1.77777777777777e300", 199_000)),
    "4 MB of nested lists": lambda: _reply(_list(b"[[[[]]]]")),
    "4 MB of levels": lambda: _reply(b'{"a":' * (_ANSWER_BYTES // 5)),
    "4 MB of bytes 0xff": lambda: _reply(b'{"a":"' + b"\xff" * _ANSWER_BYTES + b'"}'),
    "a valid system with 49,000 members": lambda: _reply(_system()),
    **{
        f"status {status}, {name}": lambda status=status, body=body: _reply(body(), status)  # type: ignore[misc]
        for status in (400, 401, 503)
        for name, body in (
            ("lists", lambda: _list(b"[[[[]]]]")),
            ("1e308", lambda: _list(b"1e308")),
            ("messages", lambda: _list(b'{"Message":"x","MessageId":"y"}')),
            ("digits", lambda: _list(b"7" * 4000)),
        )
    },
    "gzip bomb": lambda: _reply(_bomb(), 200, "Content-Encoding: gzip\r\n"),
    "status 500, gzip bomb": lambda: _reply(_bomb(), 500, "Content-Encoding: gzip\r\n"),
    "a byte a second": lambda: _endless(b" ", 1.0),
    "endless header": lambda: _endless(b"X-A: " + b"a" * 8000 + b"\r\n"),
    "redirects in a circle": _circle,
}


class _EvilBmc(threading.Thread):
    """Answers everything at ``port`` in the same way; ``answer`` is its name."""

    def __init__(self) -> None:
        super().__init__(name="evil BMC", daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.pieces: dict[str, list[bytes]] = {}
        self.answer = ""

    def run(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._serve, args=(connection, self.answer), daemon=True).start()

    def _serve(self, connection: socket.socket, answer: str) -> None:
        with connection, contextlib.suppress(OSError):
            connection.recv(65536)
            if answer not in self.pieces and not answer.startswith(("a byte", "endless", "redirects")):
                self.pieces[answer] = list(BMC_ANSWERS[answer]())
            for piece in self.pieces.get(answer) or BMC_ANSWERS[answer]():
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass


@lru_cache(maxsize=1)
def _evil_bmc() -> _EvilBmc:
    evil = _EvilBmc()
    evil.start()
    return evil


def answer_as(answer: str) -> int:
    """Let the BMC answer in this way from now on; return its port."""
    _evil_bmc().answer = answer
    return _evil_bmc().port


if __name__ == "__main__":
    serve(send=send, answer_as=answer_as)
