"""What else may answer in place of a PostgreSQL that can be used, as far as it matters to who connects.

PgBouncer does not know the settings of a session. It refuses them, or ignores them (``ignore_startup_parameters =
options``); then it passes on what is said. A standby says what it is.
"""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_LENGTH: Final = struct.Struct("!I")
_PROTOCOL: Final = 196608
_REFUSAL: Final = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


@contextmanager
def pooler(server: int, *, ignores: bool) -> Iterator[int]:
    """Give the port of a pooler before the PostgreSQL at the port ``server``."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            words = _startup(self.request)
            given = dict(zip(words[::2], words[1::2], strict=False))
            if given.pop(b"options", None) is not None and not ignores:
                self.request.sendall(_message(b"E", _REFUSAL))
                return
            body = _LENGTH.pack(_PROTOCOL) + b"".join(b"%s\0%s\0" % pair for pair in given.items()) + b"\0"
            with socket.create_connection(("127.0.0.1", server)) as upstream:
                upstream.sendall(_LENGTH.pack(4 + len(body)) + body)
                back = threading.Thread(target=_pass_on, args=(upstream, self.request), daemon=True)
                back.start()
                _pass_on(self.request, upstream)
                back.join()

    with _serving(Handler) as port:
        yield port


@contextmanager
def standby() -> Iterator[int]:
    """Give the port of a standby: it greets whoever connects, and hangs up at the first statement."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            _startup(self.request)
            said = {"server_version": "15.0", "server_encoding": "UTF8", "in_hot_standby": "on"}
            said |= {"client_encoding": "UTF8", "default_transaction_read_only": "off"}
            greeting = _message(b"R", _LENGTH.pack(0))
            greeting += b"".join(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in said.items())
            self.request.sendall(greeting + _message(b"K", bytes(8)) + _message(b"Z", b"I"))
            self.request.recv(1)

    with _serving(Handler) as port:
        yield port


@contextmanager
def _serving(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + _LENGTH.pack(4 + len(body)) + body


def _startup(connection: socket.socket) -> list[bytes]:
    """Return names and values of the startup message, in turns, after TLS and the like were refused."""
    while True:
        (size,) = _LENGTH.unpack(connection.recv(4, socket.MSG_WAITALL))
        message = connection.recv(size - 4, socket.MSG_WAITALL)
        if _LENGTH.unpack(message[:4]) == (_PROTOCOL,):
            return message[4:].rstrip(b"\0").split(b"\0")
        connection.sendall(b"N")


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
