"""A blocking client for the control calls of a running fleet, over one connection."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import msgspec

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope_sim.machine import SimMachine
from ferroscope_sim.outcomes import Counters, Effect, Trace

# The status of a fleet: machines, their counters, and callback latencies.


class MachineStatus(msgspec.Struct, frozen=True):
    """One machine; ``log`` has the newest traces if requested."""

    outcome: str
    power: Power
    boot_device: BootDevice
    persistent: bool
    counters: Counters
    log: tuple[Trace, ...] = ()


class Latency(msgspec.Struct, frozen=True):
    """Of the newest answered callbacks, in seconds from the first byte sent to the last byte received."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class FleetStatus(msgspec.Struct, frozen=True):
    """The fleet at ``time`` (seconds since the epoch); ``on`` is the number of machines that are on."""

    time: float
    callback_url: str
    machines: int
    on: int
    totals: Counters
    latency: Latency
    nodes: dict[str, MachineStatus] = {}


def describe(machine: SimMachine, *, log: bool) -> MachineStatus:
    """Return the status of one machine."""
    device, persistent = machine.boot_device
    return MachineStatus(
        outcome=machine.member.outcome.name,
        power=machine.power,
        boot_device=device,
        persistent=persistent,
        counters=machine.tally.counters,
        log=tuple(machine.tally.traces) if log else (),
    )


def latency_of(seconds: Iterable[float]) -> Latency:
    """Return the distribution of ``seconds``."""
    ordered = sorted(seconds)
    if not ordered:
        return Latency()
    last = len(ordered) - 1
    return Latency(len(ordered), ordered[round(last * 0.5)], ordered[round(last * 0.99)], ordered[-1])


class ControlError(Exception):
    """The fleet rejected the call, or cannot be reached."""


class FleetClient:
    """``address`` is the fleet's ``IP:PORT``. For one thread at a time."""

    def __init__(self, address: str, *, timeout: float = 10.0) -> None:
        host, _, port = address.rpartition(":")
        self._timeout = timeout
        try:
            self._socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        except (OSError, ValueError) as error:
            raise ControlError(f"cannot connect to a fleet at {address}: {error}") from error
        self._file = self._socket.makefile("rb")

    def __enter__(self) -> FleetClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self._socket.close()

    def status(self, names: list[str] | None = None, *, nodes: bool = True, log: bool = False) -> FleetStatus:
        """Return the fleet's counters; see ``FleetStatus``."""
        answer = self.call("status", names=names, nodes=nodes, log=log)
        return msgspec.convert(answer["status"], FleetStatus)

    def reset(self) -> None:
        """Reset every machine and all counters."""
        self.call("reset")

    def wait_off(self, names: list[str] | None = None, *, timeout: float) -> bool:
        """Wait until these machines (None: all) are off and no callback is in flight."""
        return bool(self.call("wait_off", wait=timeout, names=names, timeout=timeout)["reached"])

    def wait_for(self, effect: Effect, at_least: int, *, timeout: float) -> bool:
        """Wait until the fleet's total of ``effect`` has reached ``at_least``."""
        answer = self.call("wait", wait=timeout, effect=effect, at_least=at_least, timeout=timeout)
        return bool(answer["reached"])

    def call_back_to(self, urls: str) -> None:
        """Send further callbacks to ``urls`` (separated by commas)."""
        self.call("callback", callback_url=urls)

    def faults(self, *, on: bool) -> None:
        """Make the BMCs fail according to their outcomes; false: make all of them work."""
        self.call("faults", on=on)

    def call(self, op: str, *, wait: float = 0.0, **fields: Any) -> dict[str, Any]:
        """Return the answer to any call; ``wait`` extends the time-out, in seconds. ``ControlError``."""
        line = msgspec.json.encode({"op": op, **fields}) + b"\n"
        try:
            self._socket.settimeout(self._timeout + wait)
            self._socket.sendall(line)
            text = self._file.readline()
        except OSError as error:
            raise ControlError(f"{op}: {error}") from error
        answer = (
            msgspec.json.decode(text, type=dict[str, Any]) if text.endswith(b"\n") else {"error": "connection closed"}
        )
        if not answer.get("ok"):
            raise ControlError(f"{op}: {answer.get('error')}")
        return answer
