"""What a fleet tells about itself: the machines, their counters, and the callbacks' latencies."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ferroscope.ports.bmc import BootDevice, Power
from ferroscope.sim.node import Machine
from ferroscope.sim.tally import Counters, Trace


class MachineStatus(msgspec.Struct, frozen=True):
    """One machine; ``log`` holds the newest traces where they were asked for."""

    outcome: str
    power: Power
    boot_device: BootDevice
    persistent: bool
    counters: Counters
    log: tuple[Trace, ...] = ()


class Latency(msgspec.Struct, frozen=True):
    """Of the newest answered callbacks, in seconds from the first byte out to the last byte in."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0


class Status(msgspec.Struct, frozen=True):
    """The fleet at ``time`` (seconds since the epoch); ``on`` machines have power."""

    time: float
    callback_url: str
    machines: int
    on: int
    totals: Counters
    latency: Latency
    nodes: dict[str, MachineStatus] = {}


def describe(machine: Machine, *, log: bool) -> MachineStatus:
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
