"""One connection of the HTTP server: reads WSGI requests one after the other, and sends the responses.

``Incoming`` parses; this module enforces the timing. The application gets a complete request in memory, and each phase
has an absolute deadline, so a client that sends single bytes gains nothing. If a body is too large, the application
gets its beginning and its length, and responds. The rest is read and discarded for a while: if we closed at once, the
kernel would reset the connection and the client would lose the response.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, cast

import httptools
import structlog

from ferroscope.http_server.agreed import HEAD_ONLY, new_request_id, retries_after
from ferroscope.http_server.file_part import FilePart
from ferroscope.http_server.host import Host
from ferroscope.http_server.incoming import BEGINNING_BYTES, HEAD_BYTES, ConnectionPhase, Incoming
from ferroscope.http_server.wsgi import ReceivedRequest, environ_of, refusal, run

_MAX_PIPELINED_REQUESTS: Final = 64
# The most bytes that are read and discarded after an oversized body or a rejected request.
_DISCARDED_BYTES: Final = 64 * 1024 * 1024
_LINGER_SECONDS: Final = 5.0
# A client that reads at least at this rate gets the whole response, however large it is.
_MIN_BYTES_PER_SECOND: Final = 64 * 1024
# ironic-python-agent repeats a call after a 503, but gives up after a 429, and then starts over half a minute later.
_OF_RAMDISKS: Final = ("/v1/continue", "/v1/lookup", "/v1/heartbeat/")
# A larger body may take some hundredths of a second to decode.
LONG_BYTES: Final = 256 * 1024
# The response to ``HEAD_ONLY`` that means: read the body.
_READ: Final = b"HTTP/1.1 100"
_NEVER: Final = float("inf")

_log = structlog.get_logger(__name__)


class Connection(asyncio.Protocol):
    """Serves one client; everything but ``_serve`` runs in the event loop's thread."""

    def __init__(self, host: Host, loop: asyncio.AbstractEventLoop, environ: dict[str, Any]) -> None:
        self._host = host
        self._connections = host.connections
        self._loop = loop
        self._base = environ
        self._https = environ["wsgi.url_scheme"] == "https"
        self._transport: asyncio.Transport = None  # type: ignore[assignment]  # from connection_made on
        self._incoming = Incoming(host.connections.limits, decides=host.decides, entered=self._enter, go_on=self._go_on)
        self._stash = b""
        self._keep = True
        self.phase = ConnectionPhase.HEAD
        self.address = self.source = self.client = ""
        self.held = 0
        self._file: FilePart | None = None
        self._file_ends = 0.0
        self._reading = False
        self.deadline = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""
        self._base = self._base | {"REMOTE_ADDR": address, "REMOTE_PORT": str(peer[1]) if peer else ""}
        self.address = address
        self.source = self.client = self._connections.count_for(address)
        # With a limit of 0, ``resume_writing`` is called exactly when the whole response was sent to the kernel.
        self._transport.set_write_buffer_limits(high=0)
        self._enter(ConnectionPhase.HEAD, self._connections.limits.header_timeout)
        self._connections.join(self)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._close_file()
        self._incoming.complete.clear()
        self._incoming.request.body.clear()
        self._connections.leave(self)

    def data_received(self, data: bytes) -> None:
        if self.phase is ConnectionPhase.ANSWERING or self.phase is ConnectionPhase.SENDING:
            # A pipelined request must wait for this response. Stop reading, so that TCP slows the client down.
            self._stash += data
            self._transport.pause_reading()
            return
        self._connections.note_client_active(self)
        if self._connections.is_busy(self.client):
            self._transport.pause_reading()
            self._connections.pause(self, self._loop.time())
        if self.phase is ConnectionPhase.LINGERING:
            self._incoming.came += len(data)
            if self._incoming.came > _DISCARDED_BYTES:
                self._transport.abort()
            return
        self._feed(data)

    def eof_received(self) -> bool:
        """The client has sent everything: respond, then close."""
        self._keep = False
        return self.phase is ConnectionPhase.ANSWERING or self.phase is ConnectionPhase.SENDING

    def resume_writing(self) -> None:
        if self.phase is ConnectionPhase.SENDING:
            self._continue_after_sending()

    def identify(self, fields: dict[str, Any]) -> None:
        """Add what the transport found out about the client to the environ of its requests."""
        self._base = self._base | fields

    def refuse(self, status: int, message: str) -> None:
        """Respond to a client that does not speak TLS, and close."""
        self._https = False
        self._refuse(status, message)

    def is_unfinished(self) -> bool:
        """Whether a request was begun and its response has not been sent."""
        return self.phase not in (ConnectionPhase.IDLE, ConnectionPhase.LINGERING) and (
            self.phase is not ConnectionPhase.HEAD or self._incoming.came > 0
        )

    def evict(self) -> None:
        self._transport.abort()

    def resume(self, paused: float) -> None:
        self.deadline += paused  # the client could not send while we did not read
        if not self._stash and not self._transport.is_closing():
            self._transport.resume_reading()

    def time_out(self) -> None:
        """Close a connection whose deadline has passed."""
        if self.phase in (ConnectionPhase.HEAD, ConnectionPhase.BODY) and self._incoming.came:
            self._refuse(408)
        else:
            self._transport.abort()

    def _enter(self, phase: ConnectionPhase, seconds: float) -> None:
        self.phase = phase
        self.deadline = self._loop.time() + seconds
        if phase is ConnectionPhase.BODY and not self.source:
            self._connections.hold(self, 0)  # from now on we hold it for the client
            self.client = self._connections.client_of(self.address, self._incoming.request.headers)

    def _go_on(self) -> None:
        self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    # Handling of parsed requests.

    def _feed(self, data: bytes) -> None:
        try:
            self._incoming.feed(data)
        except httptools.HttpParserUpgrade:
            self._keep = False  # no upgrade is supported; ignore what follows the request
        except httptools.HttpParserError:
            # If complete requests came before the malformed one, they are answered first, then the connection ends.
            if not self._incoming.complete:
                self._refuse(self._incoming.status, self._incoming.explanation)
                return
            self._keep = False
        request = self._incoming.request
        if (
            not self._incoming.complete
            and request.refused
            and not request.undecided
            and (request.asks or request.size >= BEGINNING_BYTES)
        ):
            self._too_large(request)
        elif self._incoming.complete:
            self._next()
        elif request.undecided and self.phase is ConnectionPhase.BODY:
            self._decide(request)
        elif self.phase is ConnectionPhase.HEAD:
            if self._incoming.came > HEAD_BYTES:
                self._refuse(431)
            else:
                self._connections.hold(self, self._incoming.came)
        elif self.phase is ConnectionPhase.BODY:
            if self._incoming.came > HEAD_BYTES + 8 * self._connections.limits.body_size:
                self._refuse(413)
            else:
                self._connections.hold(self, min(request.size, self._connections.limits.body_size))

    def _too_large(self, request: ReceivedRequest) -> None:
        """Let the application reject it; discard the rest of the body meanwhile."""
        self._connections.hold(self, 0)
        request.keep = self._keep = False
        self._enter(ConnectionPhase.LINGERING, self._connections.limits.body_timeout)
        self._incoming.came = 0
        self._hand_over(request, bytes(request.body))

    def _decide(self, request: ReceivedRequest) -> None:
        """Let the application decide from the header whether to read the body; read nothing meanwhile."""
        if (admitted := self._admit(request, b"")) is None:
            return
        environ, source = admitted
        self._enter(ConnectionPhase.ANSWERING, _NEVER)
        self._transport.pause_reading()
        self._connections.note_answering(self)
        self._connections.add_queued(source, 0)
        self._submit(environ | {HEAD_ONLY: True}, False, request.version, source)

    def _act_on_decision(self, source: str, head: bytes, body: bytes) -> None:
        """Read the body, or send the response instead and close the connection after it."""
        self._connections.remove_queued(source, 0, self._loop.time())
        if self._transport.is_closing():
            return
        self._connections.note_client_active(self)
        request, self._incoming.request.undecided = self._incoming.request, False
        if not head.startswith(_READ):
            self._keep = False
            self._transport.write(head + body)
            self._stash = b""
            request.body.clear()
            self._transport.resume_reading()
            self._linger(_LINGER_SECONDS)
            return
        if request.asks and not request.refused:
            request.asks = False
            self._go_on()
        self._enter(ConnectionPhase.BODY, self._connections.limits.body_timeout)
        data, self._stash = self._stash, b""
        self._transport.resume_reading()
        if request.refused and request.asks:
            self._too_large(request)
        elif data:
            self._feed(data)

    def _next(self) -> None:
        """Pass the next complete request to the application."""
        if len(self._incoming.complete) > _MAX_PIPELINED_REQUESTS:
            self._transport.abort()
            return
        request = self._incoming.complete.popleft()
        self._connections.hold(self, 0)
        self._enter(ConnectionPhase.ANSWERING, _NEVER)
        self._connections.note_answering(self)
        self._hand_over(request, bytes(request.body))

    def _hand_over(self, request: ReceivedRequest, body: bytes) -> None:
        if (admitted := self._admit(request, body)) is None:
            return
        environ, source = admitted
        self._connections.add_queued(source, len(body))
        self._submit(environ, request.keep and self._keep, request.version, source)

    def _admit(self, request: ReceivedRequest, body: bytes) -> tuple[dict[str, Any], str] | None:
        """Return the environ for the application and the source that it counts for; None if the request was refused."""
        try:
            environ = self._base | environ_of(request, body)
        except (ValueError, httptools.HttpParserError):
            self._refuse(400)
            return None
        source = self._connections.admit(environ)
        if source is None:
            self._refuse_source(environ)
            return None
        return environ, source

    def _refuse_source(self, environ: dict[str, Any]) -> None:
        """Respond to a source with too many requests."""
        status = 503 if environ["PATH_INFO"].startswith(_OF_RAMDISKS) else 429
        self._refuse(status, retry=retries_after(environ.get("HTTP_USER_AGENT", "")))

    def _submit(self, environ: dict[str, Any], keep: bool, version: str, source: str) -> None:
        """Run the application in one of its threads."""
        is_long = environ["wsgi.input"].getbuffer().nbytes > LONG_BYTES
        self._host.submit(partial(self._serve, environ, keep, version, source), source, is_long=is_long)

    def _serve(self, environ: dict[str, Any], keep: bool, version: str, source: str) -> None:
        """Run the application; called in a worker thread. The loop is woken up once, at the end."""
        keep = keep and not self._host.is_draining()  # decided when the request begins, so the response can say so
        try:
            head, body = run(self._host.app, environ, keep=keep, version=version)
        except Exception:  # noqa: BLE001  # the boundary: the application answers its own faults, so this is one of ours
            ident = new_request_id()
            _log.exception("request failed", request_id=ident)
            keep, head, body = False, refusal(500, https=self._https, request_id=ident), b""
        size = environ["wsgi.input"].getbuffer().nbytes
        try:
            if HEAD_ONLY in environ:
                decided = partial(self._act_on_decision, source, head, b"" if isinstance(body, FilePart) else body)
                self._loop.call_soon_threadsafe(self._finish_call, source, decided)
                return
            self._loop.call_soon_threadsafe(
                self._finish_call, source, partial(self._send_answer, source, head, body, keep, size)
            )
        except RuntimeError:  # the loop is closed: the response came after the stop timeout
            return

    def _finish_call(self, source: str, then: Callable[[], None]) -> None:
        self._connections.release(source)
        then()

    def _send_answer(self, source: str, head: bytes, body: bytes | FilePart, keep: bool, size: int) -> None:
        self._connections.remove_queued(source, size, self._loop.time())
        if self._transport.is_closing():  # the client left, or was evicted, while the application ran
            if isinstance(body, FilePart):
                body.close()
            return
        self._keep = self._keep and keep
        if isinstance(body, FilePart):
            self._send_file(head, body)
            return
        if len(body) < _MIN_BYTES_PER_SECOND:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        if self.phase is ConnectionPhase.LINGERING:
            self._linger(self._connections.limits.body_timeout)
            return
        self._connections.note_client_active(self)
        left = self._transport.get_write_buffer_size()
        if left:
            self._enter(ConnectionPhase.SENDING, self._connections.limits.body_timeout + left / _MIN_BYTES_PER_SECOND)
            self._connections.hold(self, left)
        else:
            self._continue_after_sending()

    def _send_file(self, head: bytes, file: FilePart) -> None:
        """Send a part of a file: a thread reads the next bytes when the client has taken the previous ones.

        Even a slow client holds no thread and little memory. It has as much time as for any response, and must not
        stop reading for longer than the time-out, so that it does not hold the file.
        """
        self._connections.note_client_active(self)
        timeout = self._connections.limits.body_timeout
        self._enter(ConnectionPhase.SENDING, timeout)
        self._file, self._file_ends = file, self._loop.time() + timeout + file.length / _MIN_BYTES_PER_SECOND
        self._transport.write(head)
        if not self._transport.get_write_buffer_size():
            self._continue_after_sending()

    def _read_file(self, file: FilePart) -> None:
        def read() -> None:
            data = file.readable_bytes()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._send_piece, data)

        self._reading = True
        self._host.submit(read, self.client)

    def _send_piece(self, data: bytes) -> None:
        self._reading = False
        if self._file is None or self._transport.is_closing():
            return
        self._connections.note_client_active(self)
        stalls = self._loop.time() + self._connections.limits.body_timeout + len(data) / _MIN_BYTES_PER_SECOND
        self.deadline = min(self._file_ends, stalls)
        if not data:  # less than was announced
            self._transport.abort()
            return
        self._transport.write(data)
        if not self._transport.get_write_buffer_size():
            self._continue_after_sending()

    def _continue_after_sending(self) -> None:
        """Continue with the rest of a file, with input received meanwhile, or wait for the next request."""
        if self._file is not None:
            if self._reading:
                return
            if self._file.left:
                self._read_file(self._file)
                return
            self._close_file()
        self._connections.hold(self, 0)
        if not self._keep:
            self._transport.close()
            return
        if self._incoming.complete:
            self._next()
            return
        if self._incoming.request.undecided:
            self._decide(self._incoming.request)
            return
        if self._incoming.request.method:  # the next request has begun
            self._enter(ConnectionPhase.BODY, self._connections.limits.body_timeout)
        elif self._incoming.request.target:
            self._enter(ConnectionPhase.HEAD, self._connections.limits.header_timeout)
        else:
            self._enter(ConnectionPhase.IDLE, self._connections.limits.idle_timeout)
        data, self._stash = self._stash, b""
        if data:
            self._transport.resume_reading()
            self._feed(data)

    def _refuse(self, status: int, message: str = "", *, retry: bool = False) -> None:
        """Respond to a request that cannot be passed to the application."""
        self._connections.hold(self, 0)
        self._incoming.complete.clear()
        self._incoming.request.body.clear()
        self._connections.note_client_active(self)
        ident = new_request_id()
        self._host.log_refusal(self._loop.time(), status=status, source=self.address, request_id=ident)
        self._transport.write(refusal(status, message, https=self._https, request_id=ident, retry=retry))
        self._linger(_LINGER_SECONDS)

    def _linger(self, seconds: float) -> None:
        """Close after the client had time to read the response; discard its input until then."""
        self._incoming.came = 0
        self._enter(ConnectionPhase.LINGERING, seconds)
        if self._transport.can_write_eof():
            with contextlib.suppress(OSError):  # the client has gone
                self._transport.write_eof()
