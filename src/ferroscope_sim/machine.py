"""One simulated machine: power, boot device, and a running ramdisk.

Pure: time, timers and the ramdisk are injected. It behaves like hardware: a command for the current power state
changes nothing, a one-time boot device is used up by the next boot, and power loss ends the ramdisk. The BMC protocol
is in ``server``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope_sim.model import SimMember
from ferroscope_sim.outcomes import Effect, OutcomeTally

RESET: Final = "rebooting"
SOFT_OFF: Final = "soft power off"


class Handle(Protocol):
    """A scheduled call that can be cancelled, like an event loop's timer."""

    def cancel(self) -> object: ...


class Ramdisk(Protocol):
    """A running ramdisk."""

    def stop(self) -> bool:
        """Cut its power; True if its callback was not settled yet."""


class PowerRefusedError(Exception):
    """The machine always refuses this command."""


class SimMachine:
    """``later(seconds, call)`` schedules a call; ``start(machine)`` boots the ramdisk.

    ``lag``: seconds until the power state follows a command, None for never; ``reset_lag``: until a reset is carried
    out.
    """

    def __init__(
        self,
        member: SimMember,
        tally: OutcomeTally,
        *,
        later: Callable[[float, Callable[[], None]], Handle],
        start: Callable[[SimMachine], Ramdisk],
        lag: float | None = 0.0,
        reset_lag: float = 0.0,
    ) -> None:
        self.member = member
        self.tally = tally
        self.power = Power.OFF
        self._later = later
        self._start = start
        self._lag = lag
        self._reset_lag = reset_lag
        self._coming: tuple[Power, Handle] | None = None
        self._once: BootDevice | None = None
        self._always = BootDevice.DISK
        self._ramdisk: Ramdisk | None = None

    @property
    def boot_device(self) -> tuple[BootDevice, bool]:
        """The device of the next boot, and whether it is persistent."""
        return (self._always, True) if self._once is None else (self._once, False)

    @property
    def reported_power(self) -> Power:
        """What the BMC says about the power."""
        says = self.member.outcome.says
        if says == "unknown":
            return Power.UNKNOWN
        return Power.CHANGING if says == "changing" and self._coming else self.power

    def set_boot_device(self, device: BootDevice, *, persistent: bool) -> None:
        """Boot from ``device`` always, or only once."""
        if persistent:
            self._always, self._once = device, None
        else:
            self._once = device
        self.tally.note(Effect.BOOT_DEVICE_SETS, f"{device}, {'always' if persistent else 'once'}")

    def clear_boot_device(self, device: BootDevice) -> bool:
        """Forget the device of the next boot if it is this one for one boot; return whether it was."""
        was_set = self._once is device
        if was_set:
            self._once = None
        return was_set

    def command(self, power: str) -> None:
        """Execute ``power on``, ``power off``, ``soft power off`` or ``rebooting``; ``PowerRefusedError``."""
        wanted = {RESET: Power.ON, SOFT_OFF: Power.OFF}.get(power) or Power(power)
        if self.member.outcome.refuses == wanted:
            self.tally.note(Effect.POWER_REFUSALS, power)
            raise PowerRefusedError(f"the machine refuses to {power}")
        if power == RESET and self.power is Power.ON:
            # Every accepted reset is carried out, as by real BMCs: two at once boot the machine twice.
            if self._reset_lag:
                self._later(self._reset_lag, self._reset)
            else:
                self._reset()
        elif wanted is not self._destination():
            self._go(wanted)

    def wipe(self) -> None:
        """Reset: off, boot from disk, counters at zero."""
        self._call_off()
        self._stop()
        self.power = Power.OFF
        self._once, self._always = None, BootDevice.DISK
        self.tally.reset()

    def _destination(self) -> Power:
        return self._coming[0] if self._coming else self.power

    def _go(self, power: Power) -> None:
        self._call_off()
        if self._lag is None or power is self.power:
            return
        if self._lag:
            self._coming = (power, self._later(self._lag, lambda: self._become(power)))
        else:
            self._become(power)

    def _call_off(self) -> None:
        if self._coming:
            self._coming[1].cancel()
            self._coming = None

    def _become(self, power: Power) -> None:
        self._coming = None
        self.power = power
        if power is Power.ON:
            self.tally.note(Effect.POWER_ONS)
            self._boot()
        else:
            self.tally.note(Effect.POWER_OFFS)
            self._cut()

    def _reset(self) -> None:
        if self.power is not Power.ON:
            return
        self.tally.note(Effect.REBOOTS)
        self._cut()
        self._boot()

    def _boot(self) -> None:
        device, _ = self.boot_device
        self._once = None
        self.tally.note(Effect.BOOTS, device)
        if device is BootDevice.PXE:
            self.tally.count(Effect.PXE_BOOTS)
            self._ramdisk = self._start(self)

    def _cut(self) -> None:
        if self._stop():
            self.tally.note(Effect.RAMDISKS_INTERRUPTED)

    def _stop(self) -> bool:
        ramdisk, self._ramdisk = self._ramdisk, None
        return ramdisk is not None and ramdisk.stop()
