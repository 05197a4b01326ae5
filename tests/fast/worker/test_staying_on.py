"""A node with ``disable_power_off``: whatever happens, its machine is never commanded off."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.core.model import Document, Node
from ferroscope.core.states import Event
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Machine, Service, settings
from tests.fast.worker.test_boot import able, fails_with, set_field
from tests.fast.worker.test_delivery import KilledError, dies_and_is_replaced, take_over


def kept_on(service: Service, *, power: Power = Power.ON) -> Service:
    set_field(service, disable_power_off=True)
    service.machine.power = power
    return service


def die_at_reboot(service: Service, *, before: bool = False) -> None:
    """Kill the worker at its first reboot, before or after that takes effect."""
    reboot = service.machine.reboot

    def killing(node: Node) -> None:
        service.machine.reboot = reboot  # type: ignore[method-assign]
        if not before:
            reboot(node)
        raise KilledError

    service.machine.reboot = killing  # type: ignore[method-assign]


def test_it_is_rebooted_into_the_ramdisk_and_out_of_it(service: Service) -> None:
    kept_on(service).start()
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot"]
    service.finish()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == ["boot pxe", "reboot", "reboot"]
    assert service.node.power_state == Power.ON


def test_one_that_is_off_is_powered_on(service: Service) -> None:
    kept_on(service, power=Power.OFF).start()
    service.work()
    assert service.machine.commands == ["boot pxe", "power on"]
    service.carry_out(Event.ABORT)
    assert service.machine.commands == ["boot pxe", "power on", "reboot"]


def test_by_virtual_media_the_ramdisk_is_out_before_the_machine_boots_again() -> None:
    service = kept_on(able())
    service.inspect()
    assert service.machine.commands == ["insert", "reboot", "eject", "reboot"]


def test_it_stays_in_the_ramdisk_where_machines_are_not_to_be_powered_off() -> None:
    service = kept_on(Service(settings(power_off=False)))
    service.inspect()
    assert service.machine.commands == ["boot pxe", "reboot"]


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT])
def test_it_is_rebooted_however_the_inspection_ends(service: Service, event: Event) -> None:
    kept_on(service).start()
    service.work()
    service.carry_out(event)
    assert service.node.state is State.ERROR
    assert service.machine.commands == ["boot pxe", "reboot", "reboot"]


def test_a_machine_that_was_never_booted_is_not_rebooted_in_the_end(service: Service) -> None:
    kept_on(service)
    service.machine.fail = fails_with("boot", transient=False)
    service.boot()
    assert service.node.state is State.ERROR
    assert service.machine.commands == []


def test_a_worker_killed_after_the_reboot_makes_no_second_one(service: Service) -> None:
    die_at_reboot(kept_on(service))
    service.start()
    dies_and_is_replaced(service)
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot"]


def test_a_worker_killed_before_the_reboot_is_replaced_and_the_machine_boots(service: Service) -> None:
    die_at_reboot(kept_on(service), before=True)
    service.start()
    with pytest.raises(KilledError):
        service.work()
    assert service.machine.commands == ["boot pxe"]
    take_over(service)
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "boot pxe", "reboot"]


def killed_while_the_bmc_is_at_it(service: Service) -> None:
    """The worker dies at its reboot, which the BMC has taken and not carried out."""
    die_at_reboot(kept_on(service), before=True)
    service.start()
    with pytest.raises(KilledError):
        service.work()
    take_over(service)


def test_a_bmc_that_may_still_be_at_an_earlier_reset_is_given_its_time(service: Service) -> None:
    killed_while_the_bmc_is_at_it(service)
    service.worker.step()
    assert service.machine.commands == ["boot pxe"]
    assert service.node.state is State.STARTING
    service.machine.reboot(service.node)  # at last
    service.work()
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe", "reboot"]


def test_a_callback_goes_before_the_second_look_at_a_reset(service: Service) -> None:
    killed_while_the_bmc_is_at_it(service)
    service.worker.step()
    service.machine.reboot(service.node)
    service.finish()
    assert service.node.state is State.FINISHED
    assert service.machine.commands == ["boot pxe", "reboot", "reboot"]


class Marked(Machine):
    """A machine whose BMC shows each restart by a number, and would show it at once."""

    starts = 0

    def boots(self) -> None:
        self.starts += 1

    def boot_marks(self, _node: Node) -> Document:
        return {"starts": self.starts}

    def restarted_since(self, _node: Node, marks: Document) -> bool | None:
        return bool(marks["starts"] != self.starts) if marks else None


def marked(service: Service) -> Service:
    service.machine.__class__ = Marked
    return service


def test_a_bmc_that_shows_the_reset_is_believed(service: Service) -> None:
    killed_while_the_bmc_is_at_it(marked(service))
    service.machine.boots()
    service.work()  # the boot device is still what was set, as some BMCs keep it until the machine has booted
    assert service.node.state is State.WAITING
    assert service.machine.commands == ["boot pxe"]


def test_a_databases_clock_that_was_set_back_gives_a_bmc_its_time_once_more(service: Service) -> None:
    killed_while_the_bmc_is_at_it(service)
    service.clock.now -= 20.0  # four times what a BMC is given here
    again = service.clock.now
    service.work()
    assert service.machine.commands == ["boot pxe", "boot pxe", "reboot"]
    (reset,) = (entry.at for entry in service.journal if entry.step == "reboot")
    assert 5.0 <= reset - again < 40.0


def test_a_bmc_that_does_not_tell_the_boot_device_gets_no_second_reboot(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    die_at_reboot(kept_on(service), before=True)
    service.start()
    with pytest.raises(KilledError):
        service.work()
    monkeypatch.setattr(service.machine, "get_boot_device", lambda _node: (None, None))
    take_over(service)
    service.work()
    assert "reboot" not in service.machine.commands


def test_a_worker_killed_at_the_last_reboot_makes_no_other_one(service: Service) -> None:
    kept_on(service).start()
    service.work()
    die_at_reboot(service)
    service.call_back()
    dies_and_is_replaced(service)
    assert service.node.state is State.FINISHED
    assert service.machine.commands == ["boot pxe", "reboot", "reboot"]


def test_a_last_reboot_that_fails_is_a_warning(service: Service) -> None:
    kept_on(service).start()
    service.work()
    service.machine.fail = fails_with("reboot", transient=True)
    service.finish()
    assert service.node.state is State.FINISHED
    assert any("out of the ramdisk" in entry.message for entry in service.journal)


@pytest.mark.parametrize(
    ("target", "power", "commands"),
    [
        ("rebooting", Power.ON, ["reboot"]),
        ("rebooting", Power.OFF, ["power on"]),
        ("power on", Power.OFF, ["power on"]),
        ("power off", Power.ON, []),
    ],
)
def test_commands_of_operators(service: Service, target: str, power: Power, commands: list[str]) -> None:
    kept_on(service, power=power).submit(Event.SET_POWER, {"target": target})
    service.work()
    assert service.machine.commands == commands
    error: Any = service.node.last_error
    assert (error is None) is bool(commands)
    if not commands:
        assert "disable_power_off" in error
