"""A fleet on one TCP port: the BMCs of all its machines, and its control calls.

The host should be a loopback address: whoever reaches the port has power over the fleet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

import structlog

from ferroscope.sim.bmc import Bmcs
from ferroscope.sim.control import Control
from ferroscope.sim.fleet import Fleet
from ferroscope.sim.link import Link
from ferroscope.sim.protocol import Reply, read, refuse

# Turns of the event loop until a connection that was accepted has reached its link.
_ACCEPTING: Final = 4


class BmcServer:
    """Serves ``fleet`` in its loop, at the host and port of its settings (0: any free port)."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._bmcs = Bmcs(fleet.machines, fleet.settings)
        self._control = Control(fleet)
        self._links: set[Link] = set()
        self._server: asyncio.Server | None = None
        self._log = structlog.get_logger(__name__)

    async def start(self) -> str:
        """Listen; return the address as ``IP:PORT``. Raises ``OSError`` where the port is taken."""
        settings = self._fleet.settings
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Link(self._answer, self._links), settings.host, settings.port, backlog=1024
        )
        host, port = self._server.sockets[0].getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._log.info("the fleet is up", address=address, machines=len(self._fleet.machines))
        return address

    async def stop(self) -> None:
        """Close the port and all its connections, those that are just being accepted too."""
        if self._server is not None:
            # asyncio forgets a connection that it accepts while the server closes, without closing it.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(_ACCEPTING):
                await asyncio.sleep(0)
            self._server.close()
            await self._server.wait_closed()
        while self._links:
            for link in list(self._links):
                link.close()
            await asyncio.sleep(0)
        self._log.info("the fleet is down", machines=len(self._fleet.machines))

    def _answer(self, line: bytes) -> Reply | Awaitable[Reply]:
        try:
            call = read(line)
        except ValueError as error:
            return Reply(refuse(str(error)))
        return self._bmcs.answer(call) if self._bmcs.knows(call.op) else self._control.answer(call)
