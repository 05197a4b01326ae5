"""A fleet on one TCP port: the BMCs of all its machines, and its control calls.

The host should be a loopback address: whoever reaches the port has power over the fleet. At 127.0.0.1 the machines have
an address each, in several /24s, as at a site; those that cannot be reached have ports of their own besides.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

import msgspec
import structlog

from ferroscope.sim.bmc import Bmcs
from ferroscope.sim.control import Control
from ferroscope.sim.door import Door
from ferroscope.sim.fleet import Fleet
from ferroscope.sim.outcomes import Bmc
from ferroscope.sim.protocol import Reply, read, refuse
from ferroscope.sim.roster import SPREAD_HOST, bmc_host

_UNREACHABLE: Final[tuple[Bmc, ...]] = ("refused", "black-hole")


class Places(msgspec.Struct, frozen=True):
    """Where a fleet is, as ``IP:PORT``: ``control`` answers for all, ``bmcs`` has each machine's own by its name."""

    control: str
    bmcs: dict[str, str]


class BmcServer:
    """Serves ``fleet`` in its loop, at the host and port of its settings (0: any free port)."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._bmcs = Bmcs(fleet.machines, fleet.settings)
        self._control = Control(fleet, self._fail)
        self._doors: dict[Bmc, Door] = {}
        self._log = structlog.get_logger(__name__)

    async def start(self) -> Places:
        """Listen; return where. Raises ``OSError`` where the port is taken."""
        settings, machines = self._fleet.settings, self._fleet.machines.values()
        spread = settings.subnet > 0 and settings.host == SPREAD_HOST
        kinds = {machine.member.outcome.bmc for machine in machines}
        self._doors["well"] = Door(settings.host, settings.port, self._answer, spread=spread)
        for kind in kinds.intersection(_UNREACHABLE):
            self._doors[kind] = Door(settings.host, 0, self._answer, spread=spread)
        for door in self._doors.values():
            await door.open()
        if settings.bmc_faults:
            await self._fail(on=True)
        places = Places(
            self._place(settings.host, "well"),
            {
                one.member.name: self._place(bmc_host(settings, one.member.number), one.member.outcome.bmc)
                for one in machines
            },
        )
        self._log.info("the fleet is up", address=places.control, machines=len(machines))
        return places

    async def stop(self) -> None:
        """Close the ports and all their connections, those that are just being accepted too."""
        for door in self._doors.values():
            await door.close()
        self._log.info("the fleet is down", machines=len(self._fleet.machines))

    def _place(self, host: str, kind: Bmc) -> str:
        port = self._doors.get(kind, self._doors["well"]).port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _fail(self, *, on: bool) -> None:
        """Let the BMCs be as their outcomes have it, or let all of them work well."""
        self._bmcs.faulty = on
        for kind in _UNREACHABLE:
            door = self._doors.get(kind)
            if door is None:
                continue
            if not on:
                await door.open()
            elif kind == "refused":
                await door.refuse()
            else:
                await door.swallow()

    def _answer(self, line: bytes) -> Reply | Awaitable[Reply]:
        try:
            call = read(line)
        except ValueError as error:
            return Reply(refuse(str(error)))
        return self._bmcs.answer(call) if self._bmcs.knows(call.op) else self._control.answer(call)
