"""BMCs of machines that a test has: the simulator's protocol on a TCP port, so that the driver ``sim`` drives them.

All BMCs live in one thread of their own, which also starts the machines: a process dies with the thread that began it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Protocol

from ferroscope_sim.protocol import ResourceLink, SimCall, SimReply, read, refuse, write
from tests.support.processes import PATIENCE

_READY: Final = PATIENCE


class Powered(Protocol):
    """What a BMC switches."""

    @property
    def on(self) -> bool:
        """Whether it runs."""

    def power_on(self) -> None:
        """Switch it on; nothing happens where it is."""

    def power_off(self) -> None:
        """Switch it off; nothing happens where it is."""


class Bmcs:
    """``with Bmcs({NAME: machine}) as address``: whoever connects to ``IP:PORT`` has power over the machines."""

    def __init__(self, machines: Mapping[str, Powered]) -> None:
        self._machines = machines
        self._devices: dict[str, tuple[str, bool]] = {}
        self._links: set[ResourceLink] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bmcs", daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        future: Future[str] = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        return future.result(_READY)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_READY)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> str:
        self._server = await self._loop.create_server(lambda: ResourceLink(self._answer, self._links), "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    async def _end(self) -> None:
        self._server.close()
        for link in list(self._links):
            link.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)
        for machine in self._machines.values():
            machine.power_off()

    def _answer(self, line: bytes) -> SimReply:
        try:
            call = read(line)
        except ValueError as error:
            return SimReply(refuse(str(error)))
        machine = self._machines.get(call.node or "")
        if machine is None:
            return SimReply(refuse(f"no machine named {call.node!r}"))
        return SimReply(write(**self._obey(call, machine)))

    def _obey(self, call: SimCall, machine: Powered) -> dict[str, Any]:
        name = str(call.node)
        if call.op == "get_power":
            return {"power": "power on" if machine.on else "power off"}
        if call.op == "set_power":
            if call.power != "power on":
                machine.power_off()
            if call.power != "power off":
                machine.power_on()
        elif call.op == "set_boot_device":
            self._devices[name] = (str(call.device), call.persistent)
        elif call.op == "get_boot_device":
            device, persistent = self._devices.get(name, ("disk", True))
            return {"device": device, "persistent": persistent}
        return {}


class Switch:
    """A machine that is nothing but its power switch; whoever has it may play the rest."""

    def __init__(self) -> None:
        self.on = False
        self.starts = 0

    def power_on(self) -> None:
        """Switch it on, unless it is."""
        self.starts += not self.on
        self.on = True

    def power_off(self) -> None:
        """Switch it off."""
        self.on = False
