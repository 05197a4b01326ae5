"""What really happened to a machine: every effect counted, with its time.

Benches and chaos tests read the truth about double effects from here, so nothing may be counted
that did not happen, and nothing may happen uncounted. It decides nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final

import msgspec


class Effect(StrEnum):
    """The counters' names; ``MEANINGS`` has a sentence for each."""

    BMC_CALLS = "bmc_calls"
    BMC_FAULTS = "bmc_faults"
    BOOT_DEVICE_SETS = "boot_device_sets"
    POWER_ONS = "power_ons"
    POWER_OFFS = "power_offs"
    POWER_REFUSALS = "power_refusals"
    REBOOTS = "reboots"
    BOOTS = "boots"
    PXE_BOOTS = "pxe_boots"
    RAMDISKS_INTERRUPTED = "ramdisks_interrupted"
    CALLBACKS_SENT = "callbacks_sent"
    CALLBACKS_ACCEPTED = "callbacks_accepted"
    CALLBACKS_REFUSED = "callbacks_refused"
    CALLBACKS_FAILED = "callbacks_failed"
    AGENT_RESTARTS = "agent_restarts"


MEANINGS: Final[dict[Effect, str]] = {
    Effect.BMC_CALLS: "Calls that reached the BMC.",
    Effect.BMC_FAULTS: "Calls that the BMC spoiled by its outcome: transient failures, no answer, garbage.",
    Effect.BOOT_DEVICE_SETS: "Boot devices that were set.",
    Effect.POWER_ONS: "Times that the machine went from off to on; a command for the state it is in changes nothing.",
    Effect.POWER_OFFS: "Times that the machine went from on to off.",
    Effect.POWER_REFUSALS: "Power commands that the BMC refused.",
    Effect.REBOOTS: "Resets of a machine that was on.",
    Effect.BOOTS: "Boots, after a power-on or a reset, from any device.",
    Effect.PXE_BOOTS: "Boots of the ramdisk.",
    Effect.RAMDISKS_INTERRUPTED: "Ramdisks whose power was cut before their callback was settled.",
    Effect.CALLBACKS_SENT: "Callbacks put on the wire, repetitions included.",
    Effect.CALLBACKS_ACCEPTED: "Callbacks answered with 2xx.",
    Effect.CALLBACKS_REFUSED: "Callbacks answered with 3xx or with 4xx other than 409; the ramdisk gives up.",
    Effect.CALLBACKS_FAILED: "Callbacks without an answer, or answered with 5xx or 409; the ramdisk tries again.",
    Effect.AGENT_RESTARTS: "Agents that gave up for now, to be started again.",
}


class Counters(msgspec.Struct):
    """One number for each effect."""

    bmc_calls: int = 0
    bmc_faults: int = 0
    boot_device_sets: int = 0
    power_ons: int = 0
    power_offs: int = 0
    power_refusals: int = 0
    reboots: int = 0
    boots: int = 0
    pxe_boots: int = 0
    ramdisks_interrupted: int = 0
    callbacks_sent: int = 0
    callbacks_accepted: int = 0
    callbacks_refused: int = 0
    callbacks_failed: int = 0
    agent_restarts: int = 0

    def add(self, effect: Effect) -> None:
        """Count ``effect`` once more."""
        setattr(self, effect, getattr(self, effect) + 1)


class Trace(msgspec.Struct, frozen=True):
    """One effect, at seconds since the epoch; ``detail`` is for people."""

    at: float
    effect: Effect
    detail: str = ""


class Tally:
    """The effects of one machine: its own counters, the fleet's ``totals``, and the newest traces."""

    def __init__(self, totals: Counters, *, clock: Callable[[], float], keep: int = 64) -> None:
        self.counters = Counters()
        self.traces: deque[Trace] = deque(maxlen=keep)
        self._totals = totals
        self._clock = clock

    def count(self, effect: Effect) -> None:
        """Count an effect that is not worth a trace."""
        self.counters.add(effect)
        self._totals.add(effect)

    def note(self, effect: Effect, detail: str = "") -> None:
        """Count an effect and keep its trace."""
        self.count(effect)
        self.traces.append(Trace(self._clock(), effect, detail))

    def reset(self) -> None:
        """Forget this machine's own numbers; the totals are the fleet's to forget."""
        self.counters = Counters()
        self.traces.clear()
