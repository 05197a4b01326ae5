"""TLS on one connection: the protocol of its socket, and the transport of its HTTP connection.

Python's ssl module does the cryptography, on buffers in memory. asyncio's own TLS tells about a connection only after
its handshake, so slow handshakes would count against no limit; and it allocates 256 KiB for each connection. Here the
HTTP connection exists from the first moment: its limits and its deadline for a header include the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from ferroscope.api.auth.certificate import NAMES
from ferroscope.runtime.http_connection import Connection
from ferroscope.runtime.tls import Certificates

_HANDSHAKE: Final = 0x16
_CHUNK: Final = 64 * 1024
_PLAIN_HTTP: Final = "This port serves HTTPS; use https:// in the URL."


class TlsConnection(asyncio.Protocol, asyncio.Transport):
    """Everything runs in the event loop's thread."""

    def __init__(self, certificates: Certificates, http: Connection) -> None:
        super().__init__()
        self._certificates = certificates
        self._http = http
        self._socket: asyncio.Transport = None  # type: ignore[assignment]  # from connection_made on
        # None before the first byte, and for a client that does not speak TLS.
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._established = False
        self._discarding = False

    # The protocol of the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._http.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._http.connection_lost(exc)

    def pause_writing(self) -> None:
        self._http.pause_writing()

    def resume_writing(self) -> None:
        self._http.resume_writing()

    def data_received(self, data: bytes) -> None:
        if self._discarding:
            self._http.data_received(data)
            return
        if self._tls is None:
            if data[0] != _HANDSHAKE and data[:1].isalpha():
                self._refuse_plain_http()
                return
            self._tls = self._certificates.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._incoming.write(data)
        try:
            plain, ended = self._progress(self._tls)
        except ssl.SSLError as exc:
            self._fail(exc)
            return
        self._flush()
        if plain:
            self._http.data_received(plain)
        if ended and not self._socket.is_closing() and not self._http.eof_received():
            self.close()

    def eof_received(self) -> bool:
        if self._established:
            return self._http.eof_received()
        return False

    def _progress(self, tls: ssl.SSLObject) -> tuple[bytes, bool]:
        """Return what the client sent, and whether it will send nothing more."""
        if not self._established:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                return b"", False
            self._established = True
            self._http.identify(client_certificate(tls.getpeercert()))
        parts: list[bytes] = []
        while True:
            try:
                part = tls.read(_CHUNK)
            except ssl.SSLWantReadError:
                return b"".join(parts), False
            except ssl.SSLZeroReturnError:
                return b"".join(parts), True
            if not part:  # close_notify from the client; SSLZeroReturnError only if we have sent ours before
                return b"".join(parts), True
            parts.append(part)

    def _fail(self, exc: ssl.SSLError) -> None:
        """Send the alert that says why, and close."""
        self._flush()
        if not self._established:
            self._certificates.handshake_failed(self._http.address, (exc.reason or str(exc)).lower().replace("_", " "))
        self._discarding = True
        self._socket.close()

    def _refuse_plain_http(self) -> None:
        self._discarding = True
        self._http.refuse(400, _PLAIN_HTTP)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())

    # The transport of the HTTP connection.

    def write(self, data: Any) -> None:
        if self._tls is None:
            self._socket.write(data)
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError:  # the connection is broken, or its handshake is not complete
            self._socket.abort()
            return
        self._flush()

    def can_write_eof(self) -> bool:
        return self._socket.can_write_eof()

    def write_eof(self) -> None:
        self._say_goodbye()
        self._discarding = True
        self._socket.write_eof()

    def close(self) -> None:
        self._say_goodbye()
        self._socket.close()

    def _say_goodbye(self) -> None:
        """Send close_notify, so that the client knows that nothing was cut off; do not wait for its own."""
        if not self._established or self._discarding or self._tls is None:
            return
        with suppress(ssl.SSLError):  # usually SSLWantReadError: the client's is not here yet
            self._tls.unwrap()
        self._flush()

    def abort(self) -> None:
        self._socket.abort()

    def is_closing(self) -> bool:
        return self._socket.is_closing()

    def is_reading(self) -> bool:
        return self._socket.is_reading()

    def pause_reading(self) -> None:
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        self._socket.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._socket.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._socket.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)


def client_certificate(found: Mapping[str, Any] | None) -> dict[str, str]:
    """Return the environ's fields for the client's verified certificate: its names, one in each line; {} if none.

    The names are the common name of the subject, and the DNS names, mail addresses and URIs of subjectAltName.
    """
    if not found:
        return {}
    subject = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
    others = [value for kind, value in found.get("subjectAltName", ()) if kind in ("DNS", "email", "URI")]
    names = [name for name in dict.fromkeys([*subject, *others]) if name.isprintable() and name]
    return {NAMES: "\n".join(names)} if names else {}
