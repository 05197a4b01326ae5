"""What a client says to its database server, overheard between them: statements, and round trips.

A round trip is a turn on one connection: all that the client sends until the server answers. That is what a
network's latency is multiplied with, whatever the driver calls it. Statements are told apart by what they do
to which table.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Final

import msgspec

_LITERAL: Final = re.compile(r"(?:_binary|[xX])?'(?:[^'\\]|''|\\.)*'", re.DOTALL)
_PLACE: Final = re.compile(r"\b(?:FROM|INTO|UPDATE|TABLE)\s+(\w+)")
_SSL_REQUEST: Final = 80877103
_COM_QUERY: Final = 3


class Overheard(msgspec.Struct, frozen=True):
    """How often the client waited for the server, and what it said, by kind."""

    round_trips: int
    statements: Counter[str]
    turns: Counter[str]  # what was said together, by its kinds

    def __sub__(self, other: Overheard) -> Overheard:
        return Overheard(
            self.round_trips - other.round_trips, self.statements - other.statements, self.turns - other.turns
        )


def kind(statement: str) -> str:
    """Return what the statement does to which table."""
    words = statement.split(None, 1)
    if not words:
        return ""
    verb = words[0].upper()
    if verb not in ("SELECT", "INSERT", "UPDATE", "DELETE"):
        return verb
    place = _PLACE.search(statement.replace("EPOCH FROM", ""))
    locks = " for update" if verb == "SELECT" and "FOR UPDATE" in statement else ""
    return f"{verb} {place[1] if place else '(nothing)'}{locks}"


def kinds(text: str) -> list[str]:
    """Return the kinds of all statements in a message."""
    return [kind(one) for one in _LITERAL.sub("?", text).split(";") if one.strip()]


class Wire:
    """Passes everything on between clients of ``port`` and the server, a PostgreSQL or a MariaDB, and listens."""

    def __init__(self, family: str, server_port: int) -> None:
        self.family = family
        self._read = _postgresql if family == "postgresql" else _mariadb
        self._server_port = server_port
        self._lock = threading.Lock()
        self._round_trips = 0
        self._statements: Counter[str] = Counter()
        self._turns: Counter[str] = Counter()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def overheard(self) -> Overheard:
        """Return everything until now."""
        with self._lock:
            return Overheard(self._round_trips, self._statements.copy(), self._turns.copy())

    def close(self) -> None:
        """Take no more connections; those that are open go on."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                client.close()
                continue
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _Conversation(client, server, self._read(), self._note)

    def _note(self, turn: list[str]) -> None:
        with self._lock:
            self._round_trips += 1
            self._statements.update(turn)
            self._turns["; ".join(turn)] += 1


class _Conversation:
    """One connection. ``read`` takes what the client sent and returns the kinds of the statements in it."""

    def __init__(
        self,
        client: socket.socket,
        server: socket.socket,
        read: Generator[list[str], bytes, None],
        note: Callable[[list[str]], None],
    ) -> None:
        self._read = read
        next(read)
        self._note = note
        self._turn: list[str] = []
        self._lock = threading.Lock()
        self._pumps = 2
        for source, sink, hear in ((client, server, self._requested), (server, client, self._answered)):
            threading.Thread(target=self._pump, args=(source, sink, hear), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, hear: Callable[[bytes], None]) -> None:
        try:
            while data := source.recv(262144):
                hear(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for one in (source, sink):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._pumps -= 1
                last = not self._pumps
            if last:  # before that, the other thread may be reading
                source.close()
                sink.close()

    def _requested(self, data: bytes) -> None:
        with self._lock:
            self._turn += self._read.send(data)

    def _answered(self, _data: bytes) -> None:
        with self._lock:
            if self._turn:
                self._note(self._turn)
                self._turn = []


def _postgresql() -> Generator[list[str], bytes, None]:
    """Read the frontend's messages; what is executed is what was bound last, by its statement's text."""
    buffer, begun, bound = b"", False, ""
    named: dict[bytes, str] = {}
    said: list[str] = []
    while True:
        buffer += yield said
        said = []
        while len(buffer) >= (5 if begun else 4):
            length = struct.unpack("!I", buffer[1:5] if begun else buffer[:4])[0] + begun
            if len(buffer) < length:
                break
            message, buffer = buffer[:length], buffer[length:]
            if not begun:
                begun = struct.unpack("!I", message[4:8])[0] != _SSL_REQUEST
                continue
            tag, body = message[:1], message[5:]
            if tag == b"Q":
                said += kinds(body[:-1].decode())
            elif tag == b"P":
                name, text, _ = body.split(b"\0", 2)
                named[name] = text.decode()
                if name:
                    said.append("(prepare)")
            elif tag == b"B":
                _portal, name, _ = body.split(b"\0", 2)
                bound = named[name]
            elif tag == b"E":
                said += kinds(bound)


def _mariadb() -> Generator[list[str], bytes, None]:
    """Read the client's packets; a command has the sequence number 0."""
    buffer = b""
    said: list[str] = []
    while True:
        buffer += yield said
        said = []
        while len(buffer) >= 4:
            length, sequence = int.from_bytes(buffer[:3], "little"), buffer[3]
            if len(buffer) < 4 + length:
                break
            packet, buffer = buffer[4 : 4 + length], buffer[4 + length :]
            if sequence == 0 and packet[:1] == bytes([_COM_QUERY]):
                said += kinds(packet[1:].decode(errors="replace"))
