"""A server that answers as a test tells it: for what the real service does not do when asked to."""

from __future__ import annotations

import ssl
from collections.abc import Callable

from tests.support.http_target import Handler, HttpTarget

Answer = tuple[int, dict[str, str], bytes]

HANG_UP: Answer = (0, {}, b"")


class ScriptedServer(HttpTarget):
    """Gives ``answers`` in turn, the last one forever; ``asked`` are the requests that came.

    ``ports`` are their methods, with the port of the client's end of the connection.
    """

    def __init__(self, *answers: Answer, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        super().__init__(port)
        self.answers = list(answers)
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.ports: list[tuple[str, int]] = []
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.__enter__()

    def respond(self, handler: Handler, body: bytes) -> None:
        self.ports.append((handler.command, handler.client_address[1]))
        self.asked.append((handler.command, handler.path, dict(handler.headers), body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer == HANG_UP:
            handler.close_connection = True
        else:
            handler.send(*answer)

    def close(self) -> None:
        self.__exit__()


Serve = Callable[..., ScriptedServer]
