"""The part of PgBouncer that matters to who connects: it does not know the settings of a session.

It refuses them, or ignores them (``ignore_startup_parameters = options``); then it passes on what is said.
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
_MESSAGE: Final = b"SFATAL\0VFATAL\0C08P01\0Munsupported startup parameter: options\0\0"


@contextmanager
def pooler(server: int, *, ignores: bool) -> Iterator[int]:
    """Give the port of a pooler before the PostgreSQL at the port ``server``."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            words = _startup(self.request)
            given = dict(zip(words[::2], words[1::2], strict=False))
            if given.pop(b"options", None) is not None and not ignores:
                self.request.sendall(b"E" + _LENGTH.pack(4 + len(_MESSAGE)) + _MESSAGE)
                return
            body = _LENGTH.pack(_PROTOCOL) + b"".join(b"%s\0%s\0" % pair for pair in given.items()) + b"\0"
            with socket.create_connection(("127.0.0.1", server)) as upstream:
                upstream.sendall(_LENGTH.pack(4 + len(body)) + body)
                back = threading.Thread(target=_pass_on, args=(upstream, self.request), daemon=True)
                back.start()
                _pass_on(self.request, upstream)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as proxy:
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy.server_address[1]
        proxy.shutdown()


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
