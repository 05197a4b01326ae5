"""The machines below the hollow nodes, and their BMCs.

The truth about a machine's power is here: it is on while its hollow kubelet is there, answering or hanging, and every
change is noted with its time. Its BMC speaks the simulator's protocol, and says and does what the test wants: late,
wrongly, or not at all.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from typing import Final, Literal, Self

from ferroscope.contracts.bmc import Power
from ferroscope_sim.protocol import SimCall, SimReply, read, refuse, write
from ferroscope_sim.server import BmcPort
from tests.support.kubernetes import HollowNode
from tests.support.processes import PATIENCE

# What a BMC does when it is asked for the power: the truth, a lie, no clear answer, nothing, or one of these at random.
Says = Literal["truth", "off", "on", "unknown", "changing", "silent", "error", "flapping"]
_FLAPS: Final[tuple[Says, ...]] = ("truth", "truth", "silent", "error", "unknown", "changing")
_DOUBT: Final = {"unknown": Power.UNKNOWN, "changing": Power.CHANGING}
_SWITCHING: Final = 0.3  # seconds from a power command to its effect


class Machine:
    """One machine. ``says`` and ``obeys`` are those of its BMC, ``delay`` is before each of its answers, in seconds."""

    def __init__(self, node: HollowNode) -> None:
        self.node = node
        self.says: Says = "truth"
        self.obeys = True
        self.delay = 0.0
        self.asked = 0
        self.commands: list[tuple[float, bool]] = []
        # Wall-clock times from which its power was on or off: on just before a boot, off just after the end.
        self.power: list[tuple[float, bool]] = [(0.0, True)]
        self.said_off: list[float] = []  # wall-clock times at which its BMC was asked, and answered that it is off
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def on(self) -> bool:
        return self.power[-1][1]

    def was_on(self, at: float) -> tuple[bool, float]:
        """Tell whether its power was on at that time, and since when."""
        since, on = [one for one in self.power if one[0] <= at][-1]
        return on, since

    def since_said_off(self, at: float) -> float:
        """Return for how many seconds, at that time, its BMC had not been asked and answered "off"."""
        return at - max((one for one in self.said_off if one <= at), default=0.0)

    def lose_power(self) -> None:
        with self._lock:
            if self.on:
                self.node.kill()
                self.power.append((time.time(), False))

    def boot(self) -> None:
        """Power it on; its kubelet starts with a new boot ID."""
        with self._lock:
            if not self.on:
                self.power.append((time.time(), True))
                self.node.launch()

    def hang(self) -> None:
        """Its kernel stands still, with everything that runs on it."""
        with self._lock:
            if self.on:
                self.node.freeze()

    def go_on(self) -> None:
        with self._lock:
            if self.on:
                self.node.thaw()


class Rack:
    """``with Rack(nodes) as rack``: the BMCs of all of them, on one ``port`` of 127.0.0.1."""

    def __init__(self, nodes: Sequence[HollowNode], *, seed: int = 0) -> None:
        self.machines = {node.name: Machine(node) for node in nodes}
        self.port = 0
        self._chance = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rack", daemon=True)
        self._door: BmcPort | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._door = asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(10)
        self.port = self._door.port
        return self

    def __exit__(self, *_exc: object) -> None:
        assert self._door is not None
        asyncio.run_coroutine_threadsafe(self._door.close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _open(self) -> BmcPort:
        door = BmcPort("127.0.0.1", 0, self._answer, spread=False)
        await door.open()
        return door

    def _answer(self, line: bytes) -> SimReply:
        call = read(line)
        machine = self.machines[call.node or ""]
        machine.asked += 1
        says = self._chance.choice(_FLAPS) if machine.says == "flapping" else machine.says
        if says == "silent":
            return SimReply(None)
        if says == "error":
            return SimReply(refuse("the BMC is busy", transient=True), machine.delay)
        if call.op == "set_power":
            self._set(machine, call)
            return SimReply(write(), machine.delay)
        if (doubt := _DOUBT.get(says)) is not None:
            return SimReply(write(power=doubt), machine.delay)
        on = {"truth": machine.on, "on": True, "off": False}[says]
        if not on:
            machine.said_off.append(time.time())
        return SimReply(write(power=Power.ON if on else Power.OFF), machine.delay)

    def _set(self, machine: Machine, call: SimCall) -> None:
        on = call.power == Power.ON
        machine.commands.append((time.time(), on))
        if machine.obeys:
            act = machine.boot if on else machine.lose_power
            self._loop.call_later(_SWITCHING, lambda: self._loop.run_in_executor(None, act))
