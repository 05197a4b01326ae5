"""A simulated machine does what hardware does, and counts each effect once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope_sim.machine import PowerRefusedError, SimMachine
from ferroscope_sim.model import SimMember
from ferroscope_sim.outcomes import Counters, OutcomeTally


class Run:
    """A ramdisk that says whether it had settled."""

    def __init__(self) -> None:
        self.settled = False
        self.stopped = False

    def stop(self) -> bool:
        self.stopped = True
        return not self.settled


class Later:
    """Calls that a test makes happen."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.made = 0

    def __call__(self, seconds: float, call: Callable[[], None]) -> Later:
        self.calls.append((seconds, call))
        self.made += 1
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def happen(self) -> None:
        calls, self.calls = self.calls, []
        for _, call in calls:
            call()


class RuleContext:
    """A machine with its surroundings in the test's hands."""

    def __init__(self, name: str = "sim-0001", lag: float | None = 0.0) -> None:
        self.totals = Counters()
        self.later = Later()
        self.runs: list[Run] = []
        tally = OutcomeTally(self.totals, clock=lambda: 1000.0)
        self.machine = SimMachine(SimMember(name, 1), tally, later=self.later, start=self.start, lag=lag)

    def start(self, machine: SimMachine) -> Run:
        assert machine is self.machine
        self.runs.append(Run())
        return self.runs[-1]

    @property
    def counters(self) -> Counters:
        return self.machine.tally.counters

    def boot_ramdisk(self) -> None:
        self.machine.set_boot_device(BootDevice.PXE, persistent=False)
        self.machine.command("power on")


def test_a_command_for_the_present_state_changes_nothing() -> None:
    bench = RuleContext()
    bench.machine.command("power off")
    bench.boot_ramdisk()
    bench.machine.command("power on")
    assert (bench.counters.power_ons, bench.counters.power_offs, bench.counters.boots) == (1, 0, 1)
    assert len(bench.runs) == 1


def test_a_boot_device_for_once_is_used_up_by_one_boot() -> None:
    bench = RuleContext()
    bench.boot_ramdisk()
    assert bench.machine.boot_device == (BootDevice.DISK, True)
    bench.machine.command("power off")
    bench.machine.command("power on")
    assert (bench.counters.boots, bench.counters.pxe_boots) == (2, 1)


def test_a_persistent_boot_device_stays() -> None:
    bench = RuleContext()
    bench.machine.set_boot_device(BootDevice.CDROM, persistent=False)
    bench.machine.set_boot_device(BootDevice.PXE, persistent=True)
    assert bench.machine.boot_device == (BootDevice.PXE, True)
    for power in ("power on", "power off", "power on"):
        bench.machine.command(power)
    assert bench.counters.pxe_boots == 2


def test_cutting_the_power_of_an_unsettled_ramdisk_is_counted() -> None:
    bench = RuleContext()
    bench.boot_ramdisk()
    bench.machine.command("power off")
    assert bench.runs[0].stopped
    assert bench.counters.ramdisks_interrupted == 1


def test_cutting_the_power_of_a_settled_ramdisk_interrupts_nothing() -> None:
    bench = RuleContext()
    bench.boot_ramdisk()
    bench.runs[0].settled = True
    bench.machine.command("power off")
    assert bench.counters.ramdisks_interrupted == 0


def test_a_reset_boots_a_machine_that_is_on_again() -> None:
    bench = RuleContext()
    bench.boot_ramdisk()
    bench.machine.set_boot_device(BootDevice.PXE, persistent=False)
    bench.machine.command("rebooting")
    assert bench.runs[0].stopped
    assert (bench.counters.reboots, bench.counters.power_ons, bench.counters.pxe_boots) == (1, 1, 2)


def test_a_reset_powers_on_a_machine_that_is_off() -> None:
    bench = RuleContext()
    bench.machine.command("rebooting")
    assert (bench.counters.reboots, bench.counters.power_ons, bench.counters.boots) == (0, 1, 1)


def test_a_refused_power_on_changes_nothing() -> None:
    bench = RuleContext("sim-power-fail-1")
    with pytest.raises(PowerRefusedError, match="power on"):
        bench.machine.command("power on")
    assert bench.machine.power is Power.OFF
    assert (bench.counters.power_refusals, bench.counters.power_ons) == (1, 0)
    bench.machine.command("power off")


def test_a_refused_power_off_leaves_the_machine_on() -> None:
    bench = RuleContext("sim-power-off-fail-1")
    bench.boot_ramdisk()
    with pytest.raises(PowerRefusedError, match="power off"):
        bench.machine.command("power off")
    assert bench.machine.power is Power.ON
    assert not bench.runs[0].stopped


def test_a_lagging_state_follows_later_and_once() -> None:
    bench = RuleContext(lag=2.0)
    bench.boot_ramdisk()
    bench.machine.command("power on")
    assert bench.machine.power is Power.OFF
    assert [seconds for seconds, _ in bench.later.calls] == [2.0]
    assert bench.later.made == 1
    bench.later.happen()
    assert bench.machine.power is Power.ON
    assert (bench.counters.power_ons, len(bench.runs)) == (1, 1)


def test_the_opposite_command_calls_a_lagging_change_off() -> None:
    bench = RuleContext(lag=2.0)
    bench.machine.command("power on")
    bench.machine.command("power off")
    assert bench.later.calls == []
    assert bench.machine.power is Power.OFF
    assert bench.counters.power_ons == 0


def test_a_stuck_machine_accepts_and_does_nothing() -> None:
    bench = RuleContext(lag=None)
    bench.machine.command("power on")
    assert bench.machine.power is Power.OFF
    assert (bench.later.calls, bench.counters.power_ons) == ([], 0)


def test_a_wiped_machine_is_as_new() -> None:
    bench = RuleContext(lag=2.0)
    bench.boot_ramdisk()
    bench.later.happen()
    bench.machine.set_boot_device(BootDevice.PXE, persistent=True)
    bench.machine.command("power off")
    bench.machine.wipe()
    assert bench.runs[0].stopped
    assert bench.later.calls == []
    assert (bench.machine.power, bench.machine.boot_device) == (Power.OFF, (BootDevice.DISK, True))
    assert bench.counters == Counters()
    assert not bench.machine.tally.traces
