"""One client of the simulator's TCP port: lines in, lines out, in order.

It must answer each line of its connection before it looks at the next, and
bound what it keeps of a client that sends no end of line. What a line means is ``bmc``'s and
``control``'s matter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from ferroscope.sim.protocol import MAX_LINE, Reply, refuse

Answerer = Callable[[bytes], Reply | Awaitable[Reply]]


class Link(asyncio.Protocol):
    """One client. ``answer(line)`` gives the reply, or something to wait for that gives it."""

    def __init__(self, answer: Answerer, links: set[Link]) -> None:
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
        """Hang up."""
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        *lines, self._partial = (self._partial + data).split(b"\n")
        self._lines.extend(lines)
        if len(self._partial) + sum(map(len, self._lines)) > MAX_LINE:
            self._send(Reply(refuse(f"no more than {MAX_LINE} bytes at a time"), hang_up=True))
            return
        self._advance()

    def _advance(self) -> None:
        """Answer the lines that wait, until one of them takes time."""
        while self._lines and self._busy is None and not self._mute:
            reply = self._answer(self._lines.popleft())
            if isinstance(reply, Reply):
                self._dispatch(reply)
            else:
                self._busy = asyncio.ensure_future(self._later(reply))

    def _dispatch(self, reply: Reply) -> None:
        if reply.delay:
            self._busy = asyncio.get_running_loop().call_later(reply.delay, self._ready, reply)
        else:
            self._send(reply)

    async def _later(self, reply: Awaitable[Reply]) -> None:
        self._ready(await reply)

    def _ready(self, reply: Reply) -> None:
        self._busy = None
        self._send(reply)
        self._advance()

    def _send(self, reply: Reply) -> None:
        if self._transport is None:
            return
        if reply.line is not None:
            self._transport.write(reply.line)
        if reply.hang_up:
            self._transport.close()
        self._mute = reply.line is None or reply.hang_up
