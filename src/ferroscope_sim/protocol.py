"""The protocol of the simulator's port: one JSON object per line each way, for BMCs and control calls.

BMC calls: ``{"op": "get_power", "node": NAME}``, ``set_power`` with ``power`` (``power on``, ``power off``,
``soft power off``, ``rebooting``), ``set_boot_device`` with ``device`` and ``persistent``, ``get_boot_device``,
``clear_boot_device`` with ``device``, ``get_inventory`` and ``get_health``. The answer to ``get_power`` is one of those
of ``contracts.bmc.Power``.
Control calls are listed in ``server.Control``. Answers have ``ok`` true and the result, or ``ok`` false with ``error``
and ``transient``.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, cast

import msgspec

MAX_LINE_BYTES: Final = 256 * 1024


class SimCall(msgspec.Struct, frozen=True):
    """A received line; which fields are used depends on ``op``. ``timeout`` is in seconds."""

    op: str
    node: str | None = None
    power: str | None = None
    device: str | None = None
    persistent: bool = False
    names: tuple[str, ...] | None = None
    nodes: bool = True
    log: bool = False
    effect: str = ""
    at_least: int = 1
    timeout: float = 30.0
    callback_url: str = ""
    on: bool = True


class SimReply(NamedTuple):
    """What to do: send ``line`` after ``delay`` seconds, send nothing, or close the connection."""

    line: bytes | None
    delay: float = 0.0
    hang_up: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SimCall).decode


def read(line: bytes) -> SimCall:
    """Return the parsed call; ``ValueError`` with a message."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"a line must be a JSON object with op: {error}") from error


def write(**fields: Any) -> bytes:
    """Return an answer's line."""
    return _encode({"ok": True, **fields}) + b"\n"


def refuse(error: str, *, transient: bool = False) -> bytes:
    """Return the line of an error."""
    return _encode({"ok": False, "error": error, "transient": transient}) + b"\n"


# One client of the simulator's TCP port: lines in, lines out, in order.
#
# Each line is answered before the next one is processed, and the size of an incomplete line is limited.

Answerer = Callable[[bytes], SimReply | Awaitable[SimReply]]


class ResourceLink(asyncio.Protocol):
    """One client. ``answer(line)`` returns the reply, or an awaitable for it."""

    def __init__(self, answer: Answerer, links: set[ResourceLink]) -> None:
        self._answer = answer
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._partial = b""
        self._lines: deque[bytes] = deque()
        self._busy: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._mute = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._links.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.discard(self)
        if self._busy is not None:
            self._busy.cancel()
        self._lines.clear()
        self._transport = None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._partial) + sum(map(len, self._lines)) > MAX_LINE_BYTES:
            self._send(SimReply(refuse(f"a line must not exceed {MAX_LINE_BYTES} bytes"), hang_up=True))
            return
        self._advance()

    def _advance(self) -> None:
        """Answer the waiting lines, until one of them takes time."""
        while self._lines and self._busy is None and not self._mute:
            reply = self._answer(self._lines.popleft())
            if isinstance(reply, SimReply):
                self._dispatch(reply)
            else:
                self._busy = asyncio.ensure_future(self._later(reply))

    def _dispatch(self, reply: SimReply) -> None:
        if reply.delay:
            self._busy = asyncio.get_running_loop().call_later(reply.delay, self._ready, reply)
        else:
            self._send(reply)

    async def _later(self, reply: Awaitable[SimReply]) -> None:
        self._ready(await reply)

    def _ready(self, reply: SimReply) -> None:
        self._busy = None
        self._send(reply)
        self._advance()

    def _send(self, reply: SimReply) -> None:
        if self._transport is None:
            return
        if reply.line is not None:
            self._transport.write(reply.line)
        if reply.hang_up:
            self._transport.close()
        self._mute = reply.line is None or reply.hang_up
