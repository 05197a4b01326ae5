"""A fleet on TCP: the BMCs of all its machines, and its control calls.

The host should be a loopback address, because clients of the port control the fleet. On 127.0.0.1 each machine has its
own address, in several /24s, as at a site; unreachable machines have separate ports.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec
import structlog

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope_sim.fleet import SimFleet
from ferroscope_sim.inventory import out_of_band
from ferroscope_sim.machine import RESET, SOFT_OFF, PowerRefusedError, SimMachine
from ferroscope_sim.model import SPREAD_HOST, FleetSettings, bmc_host, draw, log_normal, spread
from ferroscope_sim.outcomes import Bmc, Effect
from ferroscope_sim.protocol import Answerer, ResourceLink, SimCall, SimReply, read, refuse, write


class BmcFault(Protocol):
    """Switches the BMCs' failures on or off."""

    def __call__(self, *, on: bool) -> Awaitable[None]: ...


class Control:
    """The control calls of one fleet. For benchmarks and chaos tests; a BMC has no such calls.

    ``status`` (``names``: only these; ``nodes`` false: totals only; ``log`` true: with traces), ``reset``, ``wait_off``
    (``names``, ``timeout``), ``wait`` (``effect``, ``at_least``, ``timeout``), ``callback`` (``callback_url``) and
    ``faults`` (``on`` false: all BMCs work until it is true). A wait that times out returns ``ok`` true and ``reached``
    false.
    """

    def __init__(self, fleet: SimFleet, fail: BmcFault) -> None:
        self._fleet = fleet
        self._fail = fail
        self._ops: Final[dict[str, Callable[[SimCall], SimReply | Awaitable[SimReply]]]] = {
            "status": self._status,
            "reset": self._reset,
            "wait_off": self._wait_off,
            "wait": self._wait,
            "callback": self._callback,
            "faults": self._faults,
        }

    def answer(self, call: SimCall) -> SimReply | Awaitable[SimReply]:
        """Execute ``call``, at once or asynchronously."""
        if call.op in self._ops:
            return self._ops[call.op](call)
        return SimReply(refuse(f"unknown call {call.op!r}"))

    def _status(self, call: SimCall) -> SimReply:
        status = self._fleet.status(call.names if call.nodes else (), log=call.log)
        return SimReply(write(status=status))

    def _reset(self, call: SimCall) -> SimReply:
        self._fleet.reset()
        return SimReply(write())

    async def _wait_off(self, call: SimCall) -> SimReply:
        reached = await self._fleet.wait_off(call.names, timeout=call.timeout)
        return SimReply(write(reached=reached))

    def _wait(self, call: SimCall) -> SimReply | Awaitable[SimReply]:
        try:
            effect = Effect(call.effect)
        except ValueError:
            return SimReply(refuse(f"effect must be one of: {', '.join(Effect)}"))
        return self._wait_for(effect, call)

    async def _wait_for(self, effect: Effect, call: SimCall) -> SimReply:
        reached = await self._fleet.wait_for(effect, call.at_least, timeout=call.timeout)
        return SimReply(write(reached=reached, total=getattr(self._fleet.totals, effect)))

    def _callback(self, call: SimCall) -> SimReply:
        try:
            self._fleet.call_back_to(call.callback_url)
        except ValueError as error:
            return SimReply(refuse(str(error)))
        return SimReply(write(callback_url=call.callback_url))

    async def _faults(self, call: SimCall) -> SimReply:
        await self._fail(on=call.on)
        return SimReply(write(on=call.on))


# How the simulated BMCs answer: correctly, late, wrongly or not at all, according to their outcomes.
#
# Every call must get a reply with a message, never raise. BMCs that cannot be connected to are handled by ``BmcPort``;
# here they would work.

_POWERS: Final = frozenset({Power.ON, Power.OFF, RESET, SOFT_OFF})
_DEVICES: Final = frozenset(BootDevice)
_DONE: Final = write()
_POWER_LINES: Final = {power: write(power=power) for power in Power}
# A flapping BMC does not answer for a third of each period.
_FLAPPING_SECONDS: Final = 60.0
_SPOILED: Final = frozenset({"silent", "garbage", "hang-up"})
_GARBAGE: Final = b"<html><body>502 Bad Gateway</body></html>\n"


class Bmcs:
    """The BMCs of all ``machines``, by name. While ``faulty`` is false, all of them work."""

    def __init__(
        self,
        machines: Mapping[str, SimMachine],
        settings: FleetSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.faulty = settings.bmc_faults
        self._machines = machines
        self._settings = settings
        self._clock = clock
        self._ops: Final[dict[str, Callable[[SimMachine, SimCall], bytes]]] = {
            "get_power": _get_power,
            "set_power": _set_power,
            "get_boot_device": _get_boot_device,
            "set_boot_device": _set_boot_device,
            "clear_boot_device": _clear_boot_device,
            "get_inventory": _get_inventory,
            "get_health": _get_health,
        }

    def knows(self, op: str) -> bool:
        """Whether ``op`` is a BMC call."""
        return op in self._ops

    def answer(self, call: SimCall) -> SimReply:
        """Execute ``call`` on its machine."""
        machine = self._machines.get(call.node or "")
        if machine is None:
            return SimReply(refuse(f"no machine named {call.node!r}"))
        machine.tally.count(Effect.BMC_CALLS)
        reply = self._failure_reply(machine)
        if reply is not None:
            return reply
        # A reset is answered when it is done, and is done even if nobody waits for the answer.
        working = machine.member.outcome.resets_after * self._settings.time_scale if call.power == RESET else 0.0
        return SimReply(self._ops[call.op](machine, call), working + self._delay(machine))

    def _failure_reply(self, machine: SimMachine) -> SimReply | None:
        """Return the reply if the BMC fails this call according to its outcome."""
        outcome = machine.member.outcome
        fails = outcome.fails_every and self._fails_for_now(machine, outcome.fails_every)
        spoils = outcome.bmc in _SPOILED or (outcome.bmc == "flapping" and self._is_silent_for_now(machine))
        if not (self.faulty and (fails or spoils)):
            return None
        machine.tally.note(Effect.BMC_FAULTS, outcome.name)
        if fails:
            return SimReply(refuse("the BMC is busy", transient=True), self._delay(machine))
        if outcome.bmc == "garbage":
            return SimReply(_GARBAGE)
        return SimReply(None, hang_up=outcome.bmc == "hang-up")

    def _is_silent_for_now(self, machine: SimMachine) -> bool:
        period = _FLAPPING_SECONDS * self._settings.time_scale
        phase = self._clock() + draw(self._settings.seed, machine.member.name, "flapping") * period
        return phase % period < period / 3

    def _fails_for_now(self, machine: SimMachine, every: int) -> bool:
        first = int(draw(self._settings.seed, machine.member.name, "fault") * every)
        return machine.tally.counters.bmc_calls % every == first

    def _delay(self, machine: SimMachine) -> float:
        settings = self._settings
        if not self.faulty:
            return 0.0
        delay = machine.member.outcome.answer_delay * settings.time_scale
        call = machine.tally.counters.bmc_calls
        if settings.bmc_sigma:
            delay += log_normal(settings.bmc_delay, settings.bmc_sigma, settings.seed, machine.member.name, "bmc", call)
        elif settings.bmc_delay or settings.bmc_jitter:
            delay += spread(settings.bmc_delay, settings.bmc_jitter, settings.seed, machine.member.name, "bmc", call)
        return delay


def _get_power(machine: SimMachine, _: SimCall) -> bytes:
    return _POWER_LINES[machine.reported_power]


def _set_power(machine: SimMachine, call: SimCall) -> bytes:
    if call.power is None or call.power not in _POWERS:
        return refuse(f"power must be one of: {', '.join(sorted(_POWERS))}")
    try:
        machine.command(call.power)
    except PowerRefusedError as error:
        return refuse(str(error))
    return _DONE


def _get_boot_device(machine: SimMachine, _: SimCall) -> bytes:
    device, persistent = machine.boot_device
    return write(device=device, persistent=persistent)


def _set_boot_device(machine: SimMachine, call: SimCall) -> bytes:
    if call.device not in _DEVICES:
        return refuse(f"device must be one of: {', '.join(sorted(_DEVICES))}")
    machine.set_boot_device(BootDevice(call.device), persistent=call.persistent)
    return _DONE


def _clear_boot_device(machine: SimMachine, call: SimCall) -> bytes:
    if call.device not in _DEVICES:
        return refuse(f"device must be one of: {', '.join(sorted(_DEVICES))}")
    return write(cleared=machine.clear_boot_device(BootDevice(call.device)))


def _get_inventory(machine: SimMachine, _: SimCall) -> bytes:
    return write(inventory=out_of_band.inventory(machine.member.number))


def _get_health(machine: SimMachine, _: SimCall) -> bytes:
    return write(health=out_of_band.health(machine.member.number, machine.member.outcome.health))


# The TCP ports of a fleet's BMCs: open, refusing, or unreachable.
#
# Refused connections and connection time-outs are produced by the kernel: the port is not listened on, or its queue is
# full. A spread port is bound to the loopback device: it has every address of 127.0.0.0/8, and other hosts cannot reach
# it.

_BACKLOG_CONNECTIONS: Final = 1024
# Iterations of the event loop until an accepted connection has reached its ``Link``.
_ACCEPTING_ITERATIONS: Final = 4
# The kernel queues one connection more than the backlog.
_FULL_BACKLOG_CONNECTIONS: Final = 2


class BmcPort:
    """A port of ``host`` (0: any free port), held until ``close``; ``OSError`` if it is in use."""

    def __init__(self, host: str, port: int, answer: Answerer, *, spread: bool) -> None:
        self._host = host
        self._spread = spread
        self._answer = answer
        self._links: set[ResourceLink] = set()
        self._server: asyncio.Server | None = None
        self._queued: list[socket.socket] = []
        self._socket = _bind(host, port, spread=spread)
        self.port: int = self._socket.getsockname()[1]

    async def open(self) -> None:
        """Listen and accept connections."""
        await self._hang_up()
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ResourceLink(self._answer, self._links), sock=self._socket.dup(), backlog=_BACKLOG_CONNECTIONS
        )

    async def refuse(self) -> None:
        """Hold the port without listening, so that connections are refused."""
        await self.close()
        self._socket = _bind(self._host, self.port, spread=self._spread)

    async def swallow(self) -> None:
        """Fill the backlog, so that the kernel drops further connection attempts."""
        await self._hang_up()
        self._socket.listen(0)
        for _ in range(_FULL_BACKLOG_CONNECTIONS):
            queued = socket.socket(self._socket.family)
            queued.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                queued.connect((self._host, self.port))
            self._queued.append(queued)

    async def close(self) -> None:
        """Release the port, and close all its connections, including those being accepted."""
        await self._hang_up()
        self._socket.close()

    async def _hang_up(self) -> None:
        if self._server is not None:
            # asyncio forgets connections that it accepts while the server closes, without closing them.
            for listener in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listener.fileno())
            for _ in range(_ACCEPTING_ITERATIONS):
                await asyncio.sleep(0)
            self._server.close()
        for queued in self._queued:
            queued.close()
        self._queued.clear()
        while self._links:
            for link in list(self._links):
                link.close()
            await asyncio.sleep(0)
        if self._server is not None:
            # Since Python 3.12, it waits for the connections, too.
            await self._server.wait_closed()
            self._server = None


def _bind(host: str, port: int, *, spread: bool) -> socket.socket:
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
        # The kernel checks all addresses of this host, also those of other devices, when a port is bound to a device.
        where = f"port {port} on all addresses (for BMCs with separate addresses)" if spread else f"{host} port {port}"
        raise OSError(error.errno, f"{error.strerror}: {where}") from None
    return bound


_UNREACHABLE: Final[tuple[Bmc, ...]] = ("refused", "black-hole")


class BmcAddresses(msgspec.Struct, frozen=True):
    """The addresses of a fleet, as ``IP:PORT``: ``control`` answers for all, ``bmcs`` has each machine's by its
    name."""

    control: str
    bmcs: dict[str, str]


class BmcServer:
    """Serves ``fleet`` in its event loop, on the host and port of its settings (0: any free port)."""

    def __init__(self, fleet: SimFleet) -> None:
        self._fleet = fleet
        self._bmcs = Bmcs(fleet.machines, fleet.settings)
        self._control = Control(fleet, self._fail)
        self._doors: dict[Bmc, BmcPort] = {}
        self._log = structlog.get_logger(__name__)

    async def start(self) -> BmcAddresses:
        """Listen; return the addresses. ``OSError`` if the port is in use."""
        settings, machines = self._fleet.settings, self._fleet.machines.values()
        spread = settings.subnet > 0 and settings.host == SPREAD_HOST
        kinds = {machine.member.outcome.bmc for machine in machines}
        self._doors["well"] = BmcPort(settings.host, settings.port, self._answer, spread=spread)
        for kind in kinds.intersection(_UNREACHABLE):
            self._doors[kind] = BmcPort(settings.host, 0, self._answer, spread=spread)
        for door in self._doors.values():
            await door.open()
        if settings.bmc_faults:
            await self._fail(on=True)
        places = BmcAddresses(
            self._place(settings.host, "well"),
            {
                machine.member.name: self._place(bmc_host(settings, machine.member.number), machine.member.outcome.bmc)
                for machine in machines
            },
        )
        self._log.info("fleet started", address=places.control, machines=len(machines))
        return places

    async def stop(self) -> None:
        """Close the ports and all their connections, including those being accepted."""
        for door in self._doors.values():
            await door.close()
        self._log.info("fleet stopped", machines=len(self._fleet.machines))

    def _place(self, host: str, kind: Bmc) -> str:
        port = self._doors.get(kind, self._doors["well"]).port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def _fail(self, *, on: bool) -> None:
        """Switch the BMCs' failures on or off."""
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

    def _answer(self, line: bytes) -> SimReply | Awaitable[SimReply]:
        try:
            call = read(line)
        except ValueError as error:
            return SimReply(refuse(str(error)))
        return self._bmcs.answer(call) if self._bmcs.knows(call.op) else self._control.answer(call)
