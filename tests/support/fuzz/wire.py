"""One connection to the service that keeps to HTTP or does not, and reads what is answered."""

from __future__ import annotations

import socket
import time
from typing import Final

from tests.support.fuzz.mutate import Callback

_SECONDS: Final = 60.0
NO_ANSWER: Final = 0
TOO_LATE: Final = 999


class Wire:
    """Sends callbacks one after the other; connects anew where the last one left nothing to go on with."""

    def __init__(self, bare_metal: int, introspection: int) -> None:
        self._ports = (bare_metal, introspection)
        self._open: dict[int, socket.socket] = {}

    def send(self, callback: Callback) -> list[int]:
        """Send it as its framing says; return the statuses of the answers, ``NO_ANSWER`` or ``TOO_LATE`` for none."""
        port = self._ports[callback.introspection]
        for again in (True, False):
            fresh = port not in self._open
            connection = self._connection(port)
            try:
                return self._exchange(connection, port, callback)
            except TimeoutError:
                self._drop(port)
                return [TOO_LATE]
            except (ConnectionError, EOFError):
                self._drop(port)
                if fresh or not again:
                    return [NO_ANSWER]
        raise AssertionError("unreachable")

    def close(self) -> None:
        for port in list(self._open):
            self._drop(port)

    def _connection(self, port: int) -> socket.socket:
        if port not in self._open:
            self._open[port] = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
            self._open[port].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._open[port]

    def _drop(self, port: int) -> None:
        self._open.pop(port).close()

    def _exchange(self, connection: socket.socket, port: int, callback: Callback) -> list[int]:
        pieces, answers, keep = _framed(callback)
        for index, piece in enumerate(pieces):
            if index and callback.framing == "slow":
                time.sleep(0.01)
            connection.sendall(piece)
        if not answers:
            self._drop(port)
            return []
        statuses = []
        for _ in range(answers):
            status, closing = _answer(connection)
            statuses.append(status)
            if closing:
                self._drop(port)
                return statuses
        if not keep:
            self._drop(port)
        return statuses


def _framed(callback: Callback) -> tuple[list[bytes], int, bool]:
    """Return what goes over the wire, how many answers to wait for, and whether the connection is good afterwards."""
    body, size = callback.body, len(callback.body)
    path = ("/v1/continue" if callback.introspection else "/v1/continue_inspection") + callback.query
    version = f"X-OpenStack-Ironic-API-Version: {callback.version}\r\n" if callback.version else ""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{version}".encode()
    length = b"Content-Length: %d\r\n\r\n" % size
    chunks = b"Transfer-Encoding: chunked\r\n\r\n"
    half = size // 2
    match callback.framing:
        case "chunked":
            parts = [body[:half], body[half:]]
            return [head + chunks, b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts if p), b"0\r\n\r\n"], 1, True
        case "abort":
            return [head + length, body[:half]], 0, False
        case "short":
            return [head + b"Content-Length: %d\r\n\r\n" % half, body], 1, False
        case "long":
            return [head + b"Content-Length: %d\r\n\r\n" % (size + 1000), body], 0, False
        case "bad-chunk":
            return [head + chunks + b"xyz\r\n" + body[:100] + b"\r\n0\r\n\r\n"], 1, False
        case "bad-length":
            wrong = (b"-1", b"abc", b"1" * 40, b"1, 2", b"")[callback.number % 5]
            return [head + b"Content-Length: " + wrong + b"\r\n\r\n"], 1, False
        case "expect" if (
            body
        ):  # without one it waits for a body until the connection's time-out, which RFC 9110 permits
            return [head + b"Expect: 100-continue\r\n" + length + body], 1, False
        case "both":
            return (
                [head + b"Content-Length: 5\r\n" + chunks + b"%x\r\n%s\r\n0\r\n\r\n" % (max(size, 1), body or b" ")],
                1,
                False,
            )
        case "pipelined":
            return [(head + length + body) * 2], 2, True
        case "slow":
            return [head[:30], head[30:] + length, body[:half], body[half:]], 1, True
        case _:
            return [head + length + body], 1, True


def _answer(connection: socket.socket) -> tuple[int, bool]:
    """Return the status of the next answer, and whether the service ends the connection with it."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            data += _more(connection)
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 100:
            break
    fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
    left = int(fields.get(b"content-length", b"0")) - len(data)
    while left > 0:
        left -= len(_more(connection))
    return status, left < 0 or fields.get(b"connection", b"").strip() == b"close"


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise EOFError
    return data
