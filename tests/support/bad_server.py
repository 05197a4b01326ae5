"""Servers that answer late, bit by bit, or not at all."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterable, Iterator

from tests.support.processes import PATIENCE


class Port(int):
    """The port of a bad server, with how many have called it, and how many of them were there until its last piece."""

    calls = 0
    heard_out = 0


@contextlib.contextmanager
def a_server_that(sends: Iterable[bytes], *, pause: float = 0.0, reads: bool = True) -> Iterator[Port]:
    """Give the port of a server that sends these pieces to everybody, with pauses where asked to."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        over, port = threading.Event(), Port(listener.getsockname()[1])
        pieces = list(itertools.islice(sends, 10_000))

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    connection, _ = listener.accept()
                    port.calls += 1
                    with connection:
                        if reads:
                            connection.recv(65536)
                        for piece in pieces:
                            connection.sendall(piece)
                            if pause and over.wait(pause):
                                return
                        port.heard_out += bool(pieces)
                        if not pieces:
                            over.wait(PATIENCE)
                        elif reads:  # beside the next one: a client may keep its end open for as long as it likes
                            threading.Thread(target=_see_off, args=(connection.dup(),), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield port
        finally:
            over.set()
            thread.join()


def _see_off(connection: socket.socket) -> None:
    """End the answer, and read what is left of the question: closed before, it would take the answer with it."""
    with connection, contextlib.suppress(OSError):
        connection.settimeout(1.0)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


def one_by_one(text: bytes) -> list[bytes]:
    """Return the text in pieces of one byte."""
    return [bytes([byte]) for byte in text]
