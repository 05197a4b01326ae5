"""The outcomes of simulated machines: one table, and the node's name selects the row.

``sim-timeout-3`` has the outcome ``timeout``; a name without an outcome is ``ok``. The code, the reference page and the
tests all use the table; nothing else may refer to an outcome by name.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Final, Literal

import msgspec

Body = Literal[
    "plain",
    "error",
    "no-nics",
    "no-memory",
    "lost-dimm",
    "no-arch",
    "bad-json",
    "bad-mac",
    "unknown-macs",
    "deep",
    "huge",
]
Bmc = Literal["well", "silent", "garbage", "hang-up", "refused", "black-hole", "flapping"]
Delivery = Literal["whole", "broken", "slow"]
Health = Literal["ok", "failing-drive", "failed-fan"]
Says = Literal["state", "changing", "unknown"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One row: how the machine differs from one that works.

    ``description`` says what it does, ``ends`` how its inspection ends. BMC: ``bmc`` is how it answers (``refused`` and
    ``black-hole`` have separate ports), ``answer_delay`` seconds before each answer, one of ``fails_every`` calls fails
    temporarily (0: none), ``refuses`` is the power state that it refuses, ``follows_after`` the seconds until the power
    state follows a command (None: never); meanwhile it says the previous state or, by ``says``, that it is changing, or
    it never says a state; ``resets_after`` those until a reset is carried out; ``health`` of its
    parts.
    Ramdisk: ``calls_back``; ``boot_factor`` multiplies the boot delay; ``copies`` of the callback sent at once;
    ``conflicting``: a second, different one is sent with it; ``body`` and ``delivery`` of the callback.
    Seconds are multiplied by ``time_scale``.
    """

    name: str
    description: str
    ends: str
    bmc: Bmc = "well"
    answer_delay: float = 0.0
    fails_every: int = 0
    refuses: Literal["power on", "power off"] | None = None
    follows_after: float | None = 0.0
    says: Says = "state"
    resets_after: float = 0.0
    health: Health = "ok"
    calls_back: bool = True
    boot_factor: float = 1.0
    copies: int = 1
    conflicting: bool = False
    body: Body = "plain"
    delivery: Delivery = "whole"


_REFUSED: Final = "error: callback-refused"
# If the BMC's address identifies the node, the refusal ends the inspection; otherwise it times out.
_UNIDENTIFIED: Final = "error: callback-refused, or error: timeout if the node cannot be identified"

TABLE: Final = (
    Outcome(name="ok", description="Everything works.", ends="finished"),
    # Ramdisk behavior.
    Outcome(
        name="timeout",
        description="The ramdisk never calls back.",
        ends="error: timeout",
        calls_back=False,
    ),
    Outcome(
        name="late",
        description="The ramdisk takes ten times as long to boot.",
        ends="finished, or error: timeout if that is shorter",
        boot_factor=10.0,
    ),
    Outcome(
        name="ramdisk-error",
        description="The ramdisk reports an error together with the inventory.",
        ends="error: ramdisk-error",
        body="error",
    ),
    Outcome(
        name="repeat",
        description="The ramdisk posts the same callback three times at once.",
        ends="finished, processed once",
        copies=3,
    ),
    Outcome(
        name="conflict",
        description="The ramdisk posts two different callbacks at once.",
        ends="error: conflicting-callback, or finished if the second came too late and was refused",
        conflicting=True,
    ),
    Outcome(
        name="broken-post",
        description="The connection breaks during the first callback; the ramdisk retries.",
        ends="finished",
        delivery="broken",
    ),
    Outcome(
        name="slow-post",
        description="The callback's body arrives in ten pieces over five seconds.",
        ends="finished",
        delivery="slow",
    ),
    # Inventory contents.
    Outcome(
        name="no-nics",
        description="The inventory has no network interface.",
        ends=_UNIDENTIFIED,
        body="no-nics",
    ),
    Outcome(
        name="no-memory",
        description="The inventory has no memory data.",
        ends="finished, or error: invalid-inventory with the memory hook",
        body="no-memory",
    ),
    Outcome(
        name="lost-dimm",
        description="From the second boot on, the inventory has a memory module less.",
        ends="finished",
        body="lost-dimm",
    ),
    Outcome(
        name="no-arch",
        description="The inventory has no CPU architecture.",
        ends="error: invalid-inventory",
        body="no-arch",
    ),
    Outcome(
        name="bad-mac",
        description="One network interface has no valid MAC address.",
        ends="finished, without that interface",
        body="bad-mac",
    ),
    Outcome(
        name="unknown-macs",
        description="The machine has none of the enrolled MACs and BMC addresses.",
        ends=_UNIDENTIFIED,
        body="unknown-macs",
    ),
    Outcome(
        name="bad-json",
        description="The callback's body is truncated and not valid JSON.",
        ends=_REFUSED,
        body="bad-json",
    ),
    Outcome(
        name="deep-json",
        description="The callback has arrays nested 1,000 levels deep.",
        ends=_REFUSED,
        body="deep",
    ),
    Outcome(
        name="huge-body",
        description="The callback's body has 17 MiB.",
        ends=_REFUSED,
        body="huge",
    ),
    # Health, which the BMC reports.
    Outcome(
        name="failing-drive",
        description="The BMC predicts the failure of a drive.",
        ends="finished",
        health="failing-drive",
    ),
    Outcome(
        name="failed-fan",
        description="The BMC reports a fan that has failed, as a critical problem.",
        ends="finished",
        health="failed-fan",
    ),
    # BMC behavior.
    Outcome(
        name="power-fail",
        description="The BMC refuses to power on.",
        ends="error: bmc-refused",
        refuses="power on",
    ),
    Outcome(
        name="power-off-fail",
        description="The BMC refuses to power off.",
        ends="error: bmc-refused, or finished with the power left on",
        refuses="power off",
    ),
    Outcome(
        name="power-lag",
        description="The power state follows two seconds after the command.",
        ends="finished",
        follows_after=2.0,
    ),
    Outcome(
        name="power-changing",
        description="Like power-lag, but meanwhile the BMC reports that the power state is changing.",
        ends="finished",
        follows_after=2.0,
        says="changing",
    ),
    Outcome(
        name="power-unknown",
        description="The BMC carries out commands, but never reports whether the machine is on or off.",
        ends="error: power-failed",
        says="unknown",
    ),
    Outcome(
        name="slow-reset",
        description="A reset is carried out three seconds after the command.",
        ends="finished",
        resets_after=3.0,
    ),
    Outcome(
        name="power-stuck",
        description="The BMC accepts power commands, but the power state never changes.",
        ends="error: power-failed",
        follows_after=None,
    ),
    Outcome(
        name="bmc-flaky",
        description="Every eighth call fails temporarily.",
        ends="finished, after a retry",
        fails_every=8,
    ),
    Outcome(
        name="bmc-slow",
        description="Each answer of the BMC takes a second.",
        ends="finished",
        answer_delay=1.0,
    ),
    Outcome(
        name="bmc-dead",
        description="The BMC accepts connections and never answers.",
        ends="error: bmc-unreachable",
        bmc="silent",
    ),
    Outcome(
        name="bmc-refused",
        description="Nothing listens on the BMC's port: connections are refused.",
        ends="error: bmc-connection-refused",
        bmc="refused",
    ),
    Outcome(
        name="bmc-black-hole",
        description="Nothing answers at the BMC's address: connecting times out.",
        ends="error: bmc-unreachable",
        bmc="black-hole",
    ),
    Outcome(
        name="bmc-flapping",
        description="The BMC does not answer for 20 s of each minute.",
        ends="finished, after a retry, or error: bmc-unreachable",
        bmc="flapping",
    ),
    Outcome(
        name="bmc-garbage",
        description="The BMC answers in another protocol.",
        ends="error: bmc-refused",
        bmc="garbage",
    ),
    Outcome(
        name="bmc-hang-up",
        description="The BMC closes the connection instead of answering.",
        ends="error: bmc-unreachable",
        bmc="hang-up",
    ),
)

OUTCOMES: Final = {outcome.name: outcome for outcome in TABLE}

# Traces of a machine.
_MAX_TRACES: Final = 64
_NAME: Final = re.compile(r"sim-(?P<outcome>[a-z][a-z-]*?)(?:-\d+)?\Z")


def outcome_of(name: str) -> Outcome:
    """Return the outcome selected by the node's ``name``."""
    match = _NAME.match(name)
    return OUTCOMES.get(match["outcome"] if match else "ok", OUTCOMES["ok"])


# What happened to a machine: every effect is counted, with its time.
#
# Benchmarks and chaos tests read from here whether effects were duplicated, so every effect must be counted exactly
# once.


class Effect(StrEnum):
    """The counters' names; ``MEANINGS`` describes them."""

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
    Effect.BMC_FAULTS: "Calls that failed because of the BMC's outcome: transient errors, no answer, invalid data.",
    Effect.BOOT_DEVICE_SETS: "Boot device commands.",
    Effect.POWER_ONS: "Changes from off to on; a command for the current state is not counted.",
    Effect.POWER_OFFS: "Changes from on to off.",
    Effect.POWER_REFUSALS: "Power commands that the BMC refused.",
    Effect.REBOOTS: "Resets of a machine that was on.",
    Effect.BOOTS: "Boots from any device, after a power-on or a reset.",
    Effect.PXE_BOOTS: "Boots of the ramdisk.",
    Effect.RAMDISKS_INTERRUPTED: "Ramdisks that lost power before their callback was settled.",
    Effect.CALLBACKS_SENT: "Callbacks sent, repetitions included.",
    Effect.CALLBACKS_ACCEPTED: "Callbacks answered with 2xx.",
    Effect.CALLBACKS_REFUSED: "Callbacks answered with 3xx or with 4xx other than 409; the ramdisk gives up.",
    Effect.CALLBACKS_FAILED: "Callbacks without an answer, or answered with 5xx or 409; the ramdisk retries.",
    Effect.AGENT_RESTARTS: "Agents that gave up and are restarted.",
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
        """Increment the counter of ``effect``."""
        setattr(self, effect, getattr(self, effect) + 1)


class Trace(msgspec.Struct, frozen=True):
    """One effect, in seconds since the epoch; ``detail`` is for people."""

    at: float
    effect: Effect
    detail: str = ""


class OutcomeTally:
    """The effects of one machine: its counters, the fleet's ``totals``, and the newest traces."""

    def __init__(self, totals: Counters, *, clock: Callable[[], float]) -> None:
        self.counters = Counters()
        self.traces: deque[Trace] = deque(maxlen=_MAX_TRACES)
        self._totals = totals
        self._clock = clock

    def count(self, effect: Effect) -> None:
        """Count an effect without a trace."""
        self.counters.add(effect)
        self._totals.add(effect)

    def note(self, effect: Effect, detail: str = "") -> None:
        """Count an effect and keep its trace."""
        self.count(effect)
        self.traces.append(Trace(self._clock(), effect, detail))

    def reset(self) -> None:
        """Reset this machine's counters; the fleet resets the totals."""
        self.counters = Counters()
        self.traces.clear()
