"""Sends callbacks over HTTP from the fleet's event loop, with persistent connections.

A real ramdisk opens one connection per boot; a fleet shares connections, so one that the server closed in the meantime
is silently replaced. All other errors are passed to the ramdisk. Responses are not evaluated here.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

import msgspec

from ferroscope_sim.outcomes import Delivery
from ferroscope_sim.ramdisk import AnswerReader, ApiUnreachableError, MalformedError, NoAnswerError, RamdiskAnswer

_PIECE_COUNT = 10
_SLOW_SECONDS = 5.0


class CallbackTarget(msgspec.Struct, frozen=True):
    """The target of a URL: host and port, and what a request to it begins with."""

    host: str
    port: int
    tls: bool
    path: str
    netloc: str

    @property
    def server(self) -> tuple[str, int, bool]:
        """What requests that share connections have in common."""
        return self.host, self.port, self.tls


@lru_cache(maxsize=16)
def target_of(url: str) -> CallbackTarget:
    """Return the target of ``url``; ``ValueError`` if it is not an HTTP URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"invalid callback URL {url!r}: expected http://HOST:PORT/PATH")
    tls = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return CallbackTarget(
        parts.hostname, parts.port or (443 if tls else 80), tls, path, parts.netloc.rpartition("@")[2]
    )


def _post(target: CallbackTarget, body: bytes) -> bytes:
    head = (
        f"POST {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\nContent-Type: application/json\r\n"
        f"Accept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Wire(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.open = True
        self._reader = AnswerReader()
        self._answer: asyncio.Future[RamdiskAnswer] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def expect(self, timeout: float) -> asyncio.Future[RamdiskAnswer]:
        """Return the future response; it fails with ``ApiUnreachableError`` or, after ``timeout``, with
        ``NoAnswerError``."""
        loop = asyncio.get_running_loop()
        self._reader = AnswerReader()
        answer: asyncio.Future[RamdiskAnswer] = loop.create_future()
        self._answer = answer
        timer = loop.call_later(timeout, self._fail, NoAnswerError(f"timed out after {timeout:g} s"))
        answer.add_done_callback(lambda _: timer.cancel())
        return answer

    @property
    def is_untouched(self) -> bool:
        """Whether no byte of the current response has arrived."""
        return not self._reader.begun

    def write(self, data: bytes) -> None:
        """Send ``data``; a lost connection is reported by the future response."""
        if self.transport is not None:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.close()
            return
        try:
            answer = self._reader.feed(data)
        except MalformedError as error:
            self._fail(ApiUnreachableError(str(error)))
            return
        if answer is None:
            return
        if not self._reader.keep_alive or self._reader.more:
            self.close()
        self._answer.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        if self._answer is None or self._answer.done():
            return
        answer = self._reader.end()
        if answer is not None:
            self._answer.set_result(answer)
        else:
            self._answer.set_exception(ApiUnreachableError(f"connection lost: {exc or 'closed by the server'}"))

    def close(self) -> None:
        """Close at once; unsent data is lost."""
        self.open = False
        if self.transport is not None:
            self.transport.abort()

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
        self.close()


class HttpPoster:
    """Use within one event loop. ``timeout``: seconds for connecting and for the response, each.

    ``connections`` limits concurrent callbacks (``places``); ``scale`` multiplies the time of slow deliveries.
    ``latencies`` has the newest response times in seconds.
    """

    def __init__(self, *, timeout: float, connections: int, scale: float = 1.0) -> None:
        self.latencies: deque[float] = deque(maxlen=65536)
        self.places = asyncio.Semaphore(connections)
        self._timeout = timeout
        self._scale = scale
        self._waiting: dict[tuple[str, int, bool], list[Wire]] = {}
        self._tls: ssl.SSLContext | None = None

    async def post(self, url: str, body: bytes, delivery: Delivery = "whole") -> RamdiskAnswer:
        """Return the response; ``ApiUnreachableError`` or ``NoAnswerError``."""
        target = target_of(url)
        answer = await self._send(target, _post(target, body), delivery)
        self.latencies.append(answer.seconds)
        return answer

    async def get(self, url: str) -> RamdiskAnswer:
        """Return the response of a GET; errors as for ``post``."""
        target = target_of(url)
        return await self._send(
            target, f"GET {target.path} HTTP/1.1\r\nHost: {target.netloc}\r\n\r\n".encode(), "whole"
        )

    def close(self) -> None:
        """Close idle connections."""
        for wires in self._waiting.values():
            for wire in wires:
                wire.close()
        self._waiting.clear()

    async def _send(self, target: CallbackTarget, request: bytes, delivery: Delivery) -> RamdiskAnswer:
        wire = self._take(target) if delivery == "whole" else None
        if wire is not None:
            try:
                return await self._exchange(target, wire, request, delivery)
            except ApiUnreachableError:
                if not wire.is_untouched:
                    raise
        return await self._exchange(target, await self._connect(target), request, delivery)

    def _take(self, target: CallbackTarget) -> Wire | None:
        wires = self._waiting.get(target.server, [])
        while wires:
            wire = wires.pop()
            if wire.open:
                return wire
        return None

    async def _connect(self, target: CallbackTarget) -> Wire:
        loop = asyncio.get_running_loop()
        if target.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        try:
            async with asyncio.timeout(self._timeout):
                _, wire = await loop.create_connection(
                    Wire, target.host, target.port, ssl=self._tls if target.tls else None
                )
        except TimeoutError:
            raise ApiUnreachableError(f"connecting timed out after {self._timeout:g} s") from None
        except OSError as error:
            raise ApiUnreachableError(f"cannot connect: {error.strerror or error}") from error
        return wire

    async def _exchange(self, target: CallbackTarget, wire: Wire, request: bytes, delivery: Delivery) -> RamdiskAnswer:
        began = time.perf_counter()
        expected = wire.expect(self._timeout)
        try:
            if delivery == "whole":
                wire.write(request)
            else:
                await self._misdeliver(wire, request, delivery, expected)
            answer = await expected
        except asyncio.CancelledError:
            expected.cancel()
            wire.close()
            raise
        seconds = time.perf_counter() - began
        if wire.open:
            self._waiting.setdefault(target.server, []).append(wire)
        return RamdiskAnswer(answer.status, answer.body, seconds)

    async def _misdeliver(
        self, wire: Wire, request: bytes, delivery: Delivery, expected: asyncio.Future[RamdiskAnswer]
    ) -> None:
        """Send half and abort, or send in pieces with pauses."""
        if delivery == "broken":
            wire.write(request[: len(request) // 2])
            await asyncio.sleep(0)
            wire.close()
            return
        size = -(-len(request) // _PIECE_COUNT)
        for at in range(0, len(request), size):
            if expected.done():
                return
            wire.write(request[at : at + size])
            await asyncio.sleep(_SLOW_SECONDS / _PIECE_COUNT * self._scale)
