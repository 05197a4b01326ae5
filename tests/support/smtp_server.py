"""A mail server on a real socket, which says what a test wants it to say: STARTTLS, logins, refusals.

It keeps what it was told. That a real server understands us is shown in tests/nightly/mail.
"""

from __future__ import annotations

import base64
import contextlib
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import Any

from tests.support.certificates import Pair

_ANSWERS = {
    "MAIL": "250 sender ok",
    "RCPT": "250 recipient ok",
    "DATA": "354 go on",
    ".": "250 accepted",
    "AUTH": "235 welcome",
    "RSET": "250 ok",
    "QUIT": "221 bye",
}


class SmtpServer:
    """``answers``: what it says instead, by command or by recipient. ``mails``: those that it has accepted."""

    def __init__(
        self,
        pair: Pair | None = None,
        *,
        tls: bool = False,
        login: bool = False,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        self.answers = _ANSWERS | dict(answers or {})
        self.commands: list[str] = []
        self.logins: list[tuple[str, str, bool]] = []
        self.mails: list[str] = []
        self._pair, self._tls, self._login = pair, tls, login
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> SmtpServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Closing alone does not wake up accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with contextlib.ExitStack() as ending, contextlib.suppress(OSError):
                ending.callback(connection.close)
                self._talk(self._encrypted(connection, ending) if self._tls else connection, ending)

    def _encrypted(self, connection: socket.socket, ending: contextlib.ExitStack) -> ssl.SSLSocket:
        assert self._pair is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._pair.certificate, self._pair.key)
        return ending.enter_context(context.wrap_socket(connection, server_side=True))

    def _talk(self, connection: Any, ending: contextlib.ExitStack) -> None:
        connection.sendall(b"220 mail.test ESMTP\r\n")
        stream, encrypted = ending.enter_context(connection.makefile("rb")), self._tls
        while line := stream.readline().decode().rstrip():
            verb = line.split(" ")[0].upper()
            self.commands.append(verb)
            if verb == "EHLO":
                offers = ["STARTTLS"] * (self._pair is not None and not encrypted) + ["AUTH PLAIN"] * self._login
                answer = "\r\n".join(["250-mail.test", *(f"250-{one}" for one in offers), "250 8BITMIME"])
            elif verb == "STARTTLS":
                connection.sendall(b"220 go on\r\n")
                connection = self._encrypted(connection, ending)
                stream, encrypted = ending.enter_context(connection.makefile("rb")), True
                continue
            elif verb == "AUTH":
                _, user, password = base64.b64decode(line.split(" ")[2]).decode().split("\0")
                self.logins.append((user, password, encrypted))
                answer = self.answers[verb]
            elif verb == "RCPT":
                address = line.partition("<")[2].rstrip(">")
                answer = self.answers.get(address, self.answers[verb])
            else:
                answer = self.answers.get(verb, "502 unknown command")
            connection.sendall(f"{answer}\r\n".encode())
            if verb == "DATA" and answer.startswith("3"):
                lines = []
                while (one := stream.readline().decode()) != ".\r\n":
                    if not one:
                        return
                    lines.append(one)
                if self.answers["."].startswith("2"):
                    self.mails.append("".join(lines))
                connection.sendall(f"{self.answers['.']}\r\n".encode())
