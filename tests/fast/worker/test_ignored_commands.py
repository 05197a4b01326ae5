"""Commands that a BMC accepts, and ignores or carries out much later: the failure names that, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.core.model import Document, Node, Severity
from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Machine, Service, settings
from tests.fast.worker.test_boot import set_field
from tests.fast.worker.test_delivery import KilledError, dies_and_is_replaced


class Ignoring(Machine):
    """A BMC that accepts resets and carries out none."""

    def reboot(self, node: Node) -> None:
        self.commands.append("reboot")


class Showing(Ignoring):
    """One that would show a restart at once."""

    starts = 0

    def boots(self) -> None:
        super().boots()
        self.starts += 1

    def boot_marks(self, _node: Node) -> Document:
        return {"starts": self.starts}

    def restarted_since(self, _node: Node, marks: Document) -> bool | None:
        return bool(marks["starts"] != self.starts)


class Vague(Machine):
    """One whose marks prove a restart only if they change, which they do not; see ibm-openbmc/dev#3429."""

    def boot_marks(self, _node: Node) -> Document:
        return {"last_reset": "10:00"}

    def restarted_since(self, _node: Node, _marks: Document) -> bool | None:
        return None


def kept_on(machine: Machine, **inspector: Any) -> Service:
    """Return a service with such a machine, which is on and must not be powered off."""
    service = Service(settings(**inspector))
    machine.power = Power.ON
    service.machine = machine
    service.worker = service.new_worker("m1")
    set_field(service, disable_power_off=True)
    return service


def test_a_start_whose_reset_is_ignored_fails_with_that_cause_and_leaves_the_machine_as_it_was() -> None:
    service = kept_on(Showing())
    service.boot()
    assert (service.node.state, service.inspection.reason) == (State.ERROR, "not-restarted")
    assert "the BMC accepted the reset, but the machine did not restart" in (service.node.last_error or "")
    assert service.machine.commands == [*["boot pxe", "reboot"] * 3, "clear pxe"]
    assert service.machine.once is None
    assert any(one.step == "failed" and one.reason == "not-restarted" for one in service.journal)


def test_a_bmc_that_shows_no_restart_but_its_boot_device_is_found_out_by_the_time_out() -> None:
    service = kept_on(Ignoring())
    service.boot()
    assert service.node.state is State.WAITING
    assert any("does not show a restart yet" in one.message for one in service.journal)
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "not-restarted"
    assert service.machine.commands == ["boot pxe", "reboot", "clear pxe"]


def test_an_abort_does_not_restart_a_machine_that_was_not_restarted_before() -> None:
    service = kept_on(Ignoring())
    service.boot()
    service.carry_out(Event.ABORT)
    assert service.machine.commands == ["boot pxe", "reboot", "clear pxe"]


def test_a_machine_that_was_seen_to_restart_leaves_its_ramdisk_although_its_bmc_keeps_the_boot_device() -> None:
    class Keeping(Showing):
        def reboot(self, node: Node) -> None:
            super().reboot(node)
            self.starts += 1

    service = kept_on(Keeping())
    service.boot()
    service.carry_out(Event.ABORT)
    assert service.machine.commands == ["boot pxe", "reboot", "clear pxe", "reboot"]


def test_a_bmc_that_shows_nothing_at_all_is_not_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    service = kept_on(Ignoring())
    monkeypatch.setattr(service.machine, "get_boot_device", lambda _node: (None, None))
    service.boot()
    service.carry_out(Event.TIMEOUT)
    assert service.inspection.reason == "timeout"


def test_a_machine_that_boots_later_than_its_bmc_is_watched_is_inspected() -> None:
    service = kept_on(Ignoring())
    service.boot()
    service.machine.boots()
    service.finish()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == ["boot pxe", "reboot", "reboot"]
    assert "unseen_reset" not in service.node.internal


def test_a_last_reset_time_that_does_not_change_leads_to_no_second_reset() -> None:
    service = kept_on(Vague())
    reset = service.machine.reboot

    def killing(node: Node) -> None:
        reset(node)
        raise KilledError

    service.machine.reboot = killing  # type: ignore[method-assign]
    service.start()
    dies_and_is_replaced(service)
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot"]


def test_a_reset_after_which_the_machine_stays_off_is_followed_by_a_power_on() -> None:
    class Falling(Machine):
        def reboot(self, node: Node) -> None:
            self.commands.append("reboot")
            self.power = Power.OFF

    service = kept_on(Falling())
    service.boot()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot", "boot pxe", "power on"]


def test_a_machine_that_is_off_although_its_bmc_still_says_on_is_powered_on() -> None:
    """The BMC ignores a reset of a machine that is off: https://github.com/bmc-toolbox/bmclib/issues/211."""

    class Cached(Ignoring):
        stale = 4

        def get_power(self, node: Node) -> Power:
            self.stale -= 1
            return Power.ON if self.stale >= 0 else self.power

    service = kept_on(Cached())
    service.machine.power = Power.OFF
    service.boot()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot", "boot pxe", "power on"]


def test_a_bmc_that_says_on_for_a_while_after_power_off_is_waited_for(service: Service) -> None:
    class Cached(Machine):
        since_off = 9

        def get_power(self, node: Node) -> Power:
            self.since_off += 1
            return Power.ON if self.since_off < 4 else self.power

        def set_power(self, node: Node, power: Power) -> None:
            super().set_power(node, power)
            self.since_off = 0 if power is Power.OFF else 9

    service.machine.__class__ = Cached
    service.machine.power = Power.ON
    service.boot()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["power off", "boot pxe", "power on"]


def test_a_reset_out_of_the_ramdisk_that_is_ignored_is_a_warning_with_that_cause() -> None:
    service = kept_on(Showing())
    machine = service.machine

    def obeys(node: Node) -> None:
        machine.commands.append("reboot")
        machine.boots()

    machine.reboot = obeys  # type: ignore[method-assign]
    service.boot()
    del machine.reboot  # type: ignore[method-assign]
    service.finish()
    assert service.node.state is State.FINISHED
    (warning,) = (one for one in service.journal if one.severity is Severity.WARNING)
    assert warning.reason == "not-restarted"
    assert machine.commands == ["boot pxe", "reboot", "reboot"]


def test_an_operator_is_told_that_a_reset_was_ignored() -> None:
    service = kept_on(Showing())
    service.carry_out(Event.SET_POWER, {"target": "rebooting"})
    assert "not-restarted" in (service.node.last_error or "")


@pytest.mark.parametrize("ending", ["the start fails", "abort"])
def test_a_power_on_that_may_still_take_effect_is_followed_by_a_power_off(service: Service, ending: str) -> None:
    """The BMC says "off" until then, so the power-off is commanded all the same."""

    class Late(Machine):
        pending = False

        def set_power(self, node: Node, power: Power) -> None:
            self.commands.append(str(power))
            self.pending = power is Power.ON
            if ending == "abort" and self.pending:
                service.clock.now += 2.0
                service.submit(Event.ABORT)

    service.machine.__class__ = Late
    service.boot()
    assert service.node.state is State.ERROR
    assert service.machine.commands[-2:] == ["power off", "clear pxe"]
    assert not service.machine.pending  # type: ignore[attr-defined]


def test_a_boot_device_that_was_set_by_others_in_the_meantime_stays() -> None:
    service = kept_on(Ignoring())
    service.boot()
    service.machine.once = BootDevice.DISK
    service.carry_out(Event.ABORT)
    assert service.machine.once is BootDevice.DISK
