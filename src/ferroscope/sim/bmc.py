"""How the simulated BMCs answer: well, late, wrongly or not at all, as their outcome has it.

A call goes in, a reply comes out; the transport is ``server``'s matter and the machine ``node``'s.
It must answer whatever comes in with a sentence, never with an exception. Those that cannot even be connected to
are ``door``'s matter; here they would work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from ferroscope.ports.bmc import BootDevice, Power
from ferroscope.sim.chance import draw, log_normal, spread
from ferroscope.sim.node import RESET, Machine, RefusedError
from ferroscope.sim.protocol import Call, Reply, refuse, write
from ferroscope.sim.settings import FleetSettings
from ferroscope.sim.tally import Effect

_POWERS: Final = frozenset({*Power, RESET})
_DEVICES: Final = frozenset(BootDevice)
_DONE: Final = write()
_POWER_LINES: Final = {power: write(power=power) for power in Power}
# A flapping BMC is silent for a third of each period.
_PERIOD: Final = 60.0
_SPOILED: Final = frozenset({"silent", "garbage", "hang-up"})
_GARBAGE: Final = b"<html><body>502 Bad Gateway</body></html>\n"


class Bmcs:
    """The BMCs of all ``machines``, by name. ``faulty`` false: all answer well and at once, for as long as it is so."""

    def __init__(
        self, machines: Mapping[str, Machine], settings: FleetSettings, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.faulty = settings.bmc_faults
        self._machines = machines
        self._settings = settings
        self._clock = clock
        self._ops: Final[dict[str, Callable[[Machine, Call], bytes]]] = {
            "get_power": _get_power,
            "set_power": _set_power,
            "get_boot_device": _get_boot_device,
            "set_boot_device": _set_boot_device,
        }

    def knows(self, op: str) -> bool:
        """Whether ``op`` is one for a BMC."""
        return op in self._ops

    def answer(self, call: Call) -> Reply:
        """Carry out ``call`` on its machine."""
        machine = self._machines.get(call.node or "")
        if machine is None:
            return Reply(refuse(f"there is no machine named {call.node!r} here"))
        machine.tally.count(Effect.BMC_CALLS)
        spoiled = self._spoiled(machine)
        if spoiled is not None:
            return spoiled
        # A reset is answered when it is done, and done also where nobody waits for the answer any more.
        working = machine.member.outcome.resets_after * self._settings.time_scale if call.power == RESET else 0.0
        return Reply(self._ops[call.op](machine, call), working + self._delay(machine))

    def _spoiled(self, machine: Machine) -> Reply | None:
        """Return the reply of a BMC that does not do what it is told, this time."""
        outcome = machine.member.outcome
        fails = outcome.fails_every and self._fails_for_now(machine, outcome.fails_every)
        spoils = outcome.bmc in _SPOILED or (outcome.bmc == "flapping" and self._is_silent_for_now(machine))
        if not (self.faulty and (fails or spoils)):
            return None
        machine.tally.note(Effect.BMC_FAULTS, outcome.name)
        if fails:
            return Reply(refuse("the BMC is busy", transient=True), self._delay(machine))
        if outcome.bmc == "garbage":
            return Reply(_GARBAGE)
        return Reply(None, hang_up=outcome.bmc == "hang-up")

    def _is_silent_for_now(self, machine: Machine) -> bool:
        period = _PERIOD * self._settings.time_scale
        phase = self._clock() + draw(self._settings.seed, machine.member.name, "flapping") * period
        return phase % period < period / 3

    def _fails_for_now(self, machine: Machine, every: int) -> bool:
        first = int(draw(self._settings.seed, machine.member.name, "fault") * every)
        return machine.tally.counters.bmc_calls % every == first

    def _delay(self, machine: Machine) -> float:
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


def _get_power(machine: Machine, _: Call) -> bytes:
    return _POWER_LINES[machine.power]


def _set_power(machine: Machine, call: Call) -> bytes:
    if call.power is None or call.power not in _POWERS:
        return refuse(f"power must be one of: {', '.join(sorted(_POWERS))}")
    try:
        machine.command(call.power)
    except RefusedError as error:
        return refuse(str(error))
    return _DONE


def _get_boot_device(machine: Machine, _: Call) -> bytes:
    device, persistent = machine.boot_device
    return write(device=device, persistent=persistent)


def _set_boot_device(machine: Machine, call: Call) -> bytes:
    if call.device not in _DEVICES:
        return refuse(f"device must be one of: {', '.join(sorted(_DEVICES))}")
    machine.set_boot_device(BootDevice(call.device), persistent=call.persistent)
    return _DONE
