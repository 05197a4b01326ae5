"""What can go wrong with a simulated machine: one table, and the node's name chooses its row.

``sim-timeout-3`` has the outcome ``timeout``; a name that names no outcome is ``ok``. The table
is the code, the reference page and the tests' list; nothing else may know an outcome by name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal

import msgspec

Body = Literal[
    "plain", "error", "no-nics", "no-memory", "no-arch", "bad-json", "bad-mac", "unknown-macs", "deep", "huge"
]
Bmc = Literal["well", "silent", "garbage", "hang-up", "refused", "black-hole", "flapping"]
Delivery = Literal["whole", "broken", "slow"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One row: how the machine differs from one that works.

    ``sentence`` says what it does, ``ends`` what an inspection of it comes to. BMC: ``bmc`` is how it
    answers at all (``refused`` and ``black-hole``: at a port of its own), ``answer_delay`` seconds before
    each answer, ``fails_every`` so many calls one fails for now (0: none), ``refuses`` the power state it
    refuses, ``follows_after`` the seconds until the power state follows a command (None: never),
    ``resets_after`` those until a reset is carried out.
    Ramdisk: ``calls_back``; ``boot_factor`` times the usual boot delay; ``copies`` of the callback at
    once; ``conflicting``: a second, different one with it; ``body`` and ``delivery`` of the callback.
    Seconds are multiplied by ``time_scale``.
    """

    name: str
    sentence: str
    ends: str
    bmc: Bmc = "well"
    answer_delay: float = 0.0
    fails_every: int = 0
    refuses: Literal["power on", "power off"] | None = None
    follows_after: float | None = 0.0
    resets_after: float = 0.0
    calls_back: bool = True
    boot_factor: float = 1.0
    copies: int = 1
    conflicting: bool = False
    body: Body = "plain"
    delivery: Delivery = "whole"


_REFUSED: Final = "error: callback-refused"
# Where the BMC's address tells whose callback it is, the refusal ends the inspection; else only its time-out can.
_NOBODYS: Final = "error: callback-refused, or error: timeout where nothing in it tells whose it was"

TABLE: Final = (
    Outcome(name="ok", sentence="Everything works.", ends="finished"),
    # The ramdisk.
    Outcome(
        name="timeout",
        sentence="The ramdisk never calls back.",
        ends="error: timeout",
        calls_back=False,
    ),
    Outcome(
        name="late",
        sentence="The ramdisk takes ten times as long to boot.",
        ends="finished, or error: timeout where that is shorter",
        boot_factor=10.0,
    ),
    Outcome(
        name="ramdisk-error",
        sentence="The ramdisk reports an error of its own together with the inventory.",
        ends="error: ramdisk-error",
        body="error",
    ),
    Outcome(
        name="repeat",
        sentence="The ramdisk posts the same callback three times at once.",
        ends="finished, processed once",
        copies=3,
    ),
    Outcome(
        name="conflict",
        sentence="The ramdisk posts two different callbacks at once.",
        ends="error: conflicting-callback, or finished where the second came too late and was refused",
        conflicting=True,
    ),
    Outcome(
        name="broken-post",
        sentence="The connection breaks in the middle of the first callback; the ramdisk tries again.",
        ends="finished",
        delivery="broken",
    ),
    Outcome(
        name="slow-post",
        sentence="The callback's body arrives in ten pieces over five seconds.",
        ends="finished",
        delivery="slow",
    ),
    # What the ramdisk found.
    Outcome(
        name="no-nics",
        sentence="The inventory has no network interface.",
        ends=_NOBODYS,
        body="no-nics",
    ),
    Outcome(
        name="no-memory",
        sentence="The inventory says nothing about memory.",
        ends="finished, or error: invalid-inventory with the memory hook",
        body="no-memory",
    ),
    Outcome(
        name="no-arch",
        sentence="The inventory does not name the CPU's architecture.",
        ends="error: invalid-inventory",
        body="no-arch",
    ),
    Outcome(
        name="bad-mac",
        sentence="One network interface has no valid MAC address.",
        ends="finished, without that interface",
        body="bad-mac",
    ),
    Outcome(
        name="unknown-macs",
        sentence="The machine has none of the MACs and BMC addresses that were enrolled.",
        ends=_NOBODYS,
        body="unknown-macs",
    ),
    Outcome(
        name="bad-json",
        sentence="The callback's body is cut off and no JSON.",
        ends=_REFUSED,
        body="bad-json",
    ),
    Outcome(
        name="deep-json",
        sentence="The callback nests arrays a thousand deep.",
        ends=_REFUSED,
        body="deep",
    ),
    Outcome(
        name="huge-body",
        sentence="The callback has 17 MiB.",
        ends=_REFUSED,
        body="huge",
    ),
    # The BMC.
    Outcome(
        name="power-fail",
        sentence="The BMC refuses to power on.",
        ends="error: bmc-refused",
        refuses="power on",
    ),
    Outcome(
        name="power-off-fail",
        sentence="The BMC refuses to power off.",
        ends="error: bmc-refused, or finished with the power left on",
        refuses="power off",
    ),
    Outcome(
        name="power-lag",
        sentence="The power state follows two seconds after the command.",
        ends="finished",
        follows_after=2.0,
    ),
    Outcome(
        name="slow-reset",
        sentence="A reset is carried out three seconds after the command.",
        ends="finished",
        resets_after=3.0,
    ),
    Outcome(
        name="power-stuck",
        sentence="The BMC accepts power commands, and nothing follows.",
        ends="error: power-failed",
        follows_after=None,
    ),
    Outcome(
        name="bmc-flaky",
        sentence="Every eighth call fails for no lasting reason.",
        ends="finished, after a retry",
        fails_every=8,
    ),
    Outcome(
        name="bmc-slow",
        sentence="Each answer of the BMC takes a second.",
        ends="finished",
        answer_delay=1.0,
    ),
    Outcome(
        name="bmc-dead",
        sentence="The BMC takes the connection and never answers.",
        ends="error: bmc-unreachable",
        bmc="silent",
    ),
    Outcome(
        name="bmc-refused",
        sentence="Nothing listens at the BMC's port: connections are refused.",
        ends="error: bmc-unreachable",
        bmc="refused",
    ),
    Outcome(
        name="bmc-black-hole",
        sentence="Nothing answers at the BMC's address: connections are never made.",
        ends="error: bmc-unreachable",
        bmc="black-hole",
    ),
    Outcome(
        name="bmc-flapping",
        sentence="The BMC is silent for 20 s of each minute.",
        ends="finished, after a retry, or error: bmc-unreachable",
        bmc="flapping",
    ),
    Outcome(
        name="bmc-garbage",
        sentence="The BMC answers with something that is not its protocol.",
        ends="error: bmc-refused",
        bmc="garbage",
    ),
    Outcome(
        name="bmc-hang-up",
        sentence="The BMC closes the connection instead of answering.",
        ends="error: bmc-unreachable",
        bmc="hang-up",
    ),
)

OUTCOMES: Final = {outcome.name: outcome for outcome in TABLE}

_NAME: Final = re.compile(r"sim-(?P<outcome>[a-z][a-z-]*?)(?:-\d+)?\Z")


def outcome_of(name: str) -> Outcome:
    """Return the outcome that the node's ``name`` chooses."""
    match = _NAME.match(name)
    return OUTCOMES.get(match["outcome"] if match else "ok", OUTCOMES["ok"])


# What really happened to a machine: every effect counted, with its time.
#
# Benches and chaos tests read the truth about double effects from here, so nothing may be counted
# that did not happen, and nothing may happen uncounted. It decides nothing.


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
