"""The TCP ports of a fleet's BMCs: those that are open, and those at which nobody can be reached.

A refused connection and one that is never made are the kernel's doing, not ours: such a port is really not listened at,
or its queue is really full. A spread port is bound to the loopback device: it has every address of 127.0.0.0/8, and
no other host can reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import Final

from ferroscope.sim.link import Answerer, Link

_BACKLOG: Final = 1024
# Turns of the event loop until a connection that was accepted has reached its link.
_ACCEPTING: Final = 4
# The kernel takes one more connection into a queue than it is told.
_FULL: Final = 2


class Door:
    """A port of ``host`` (0: any free one), which is held until ``close``; raises ``OSError`` where it is taken."""

    def __init__(self, host: str, port: int, answer: Answerer, *, spread: bool) -> None:
        self._host = host
        self._spread = spread
        self._answer = answer
        self._links: set[Link] = set()
        self._server: asyncio.Server | None = None
        self._queued: list[socket.socket] = []
        self._socket = _bound(host, port, spread=spread)
        self.port: int = self._socket.getsockname()[1]

    async def open(self) -> None:
        """Listen, and take connections."""
        await self._hang_up()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Link(self._answer, self._links), sock=self._socket.dup(), backlog=_BACKLOG
        )

    async def refuse(self) -> None:
        """Hold the port without listening, so that connections are refused."""
        await self.close()
        self._socket = _bound(self._host, self.port, spread=self._spread)

    async def swallow(self) -> None:
        """Answer nothing at all: the kernel drops what would open a connection to a queue that is full."""
        await self._hang_up()
        self._socket.listen(0)
        for _ in range(_FULL):
            queued = socket.socket(self._socket.family)
            queued.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                queued.connect((self._host, self.port))
            self._queued.append(queued)

    async def close(self) -> None:
        """Let go of the port, and of all its connections, those that are just being accepted too."""
        await self._hang_up()
        self._socket.close()

    async def _hang_up(self) -> None:
        if self._server is not None:
            # asyncio forgets a connection that it accepts while the server closes, without closing it.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(_ACCEPTING):
                await asyncio.sleep(0)
            self._server.close()
            await self._server.wait_closed()
            self._server = None
        for queued in self._queued:
            queued.close()
        self._queued.clear()
        while self._links:
            for link in list(self._links):
                link.close()
            await asyncio.sleep(0)


def _bound(host: str, port: int, *, spread: bool) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setblocking(False)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if spread:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
            address = ("0.0.0.0", port)  # noqa: S104  # of the loopback device alone
        bound.bind(address)
    except OSError as error:
        bound.close()
        # The kernel counts every address of this host, those of other devices too, where a port is taken for a device.
        where = f"port {port} of all addresses, as BMCs with one each need it" if spread else f"{host} port {port}"
        raise OSError(error.errno, f"{error.strerror}: {where}") from None
    return bound
