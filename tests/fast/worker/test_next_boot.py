"""The boot device of an inspection whose machine does not come to its boot: no later reboot surprises anybody."""

from __future__ import annotations

import pytest

from ferroscope.contracts.bmc import BootDevice, Power
from ferroscope.contracts.errors import BmcError, NotFoundError
from ferroscope.core.model import Node, Severity
from ferroscope.core.states import Event
from ferroscope.core.virtual_media import Image
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Machine, Service
from tests.fast.worker.test_boot import AbleMachine, able, fails_with, machine, set_field
from tests.fast.worker.test_delivery import KilledError, dies_and_is_replaced, take_over


class Unforgetting(Machine):
    """A driver that cannot take a boot device back."""

    clear_boot_device = None  # type: ignore[assignment]


def warnings(service: Service) -> list[str]:
    return [one.message for one in service.journal if one.step == "boot device" and one.severity is Severity.WARNING]


@pytest.mark.parametrize("transient", [True, False])
def test_a_start_that_fails_takes_it_back(service: Service, transient: bool) -> None:
    service.machine.fail = fails_with("power on", transient=transient)
    service.boot()
    assert service.node.state is State.ERROR
    assert service.machine.once is None
    assert service.machine.commands[-1] == "clear pxe"


def test_a_machine_that_is_powered_on_again_does_not_boot_the_ramdisk(service: Service) -> None:
    service.machine.power = Power.ON
    refuses = [True]
    set_power = service.machine.set_power

    def once(node: Node, power: Power) -> None:
        if power is Power.ON and refuses:
            refuses.clear()
            service.machine.fail = lambda _command: None
            error = fails_with("power on", transient=False)("power on")
            assert error is not None
            raise error
        set_power(node, power)

    service.machine.set_power = once  # type: ignore[method-assign]
    service.boot()
    assert service.node.state is State.ERROR
    assert service.machine.commands == ["power off", "boot pxe", "clear pxe", "power on"]


def test_a_start_that_never_came_so_far_does_not_ask_for_it(service: Service) -> None:
    asked: list[str] = []
    fail = fails_with("get", transient=False)
    service.machine.fail = lambda command: asked.append(command) or fail(command)  # type: ignore[func-returns-value]
    service.boot()
    assert "clear" not in asked


@pytest.mark.parametrize("event", [Event.ABORT, Event.TIMEOUT, Event.DELETE])
def test_an_inspection_that_ends_before_the_machine_has_booted_takes_it_back(service: Service, event: Event) -> None:
    class Hanging(Machine):
        def boots(self) -> None:
            """It hangs before it looks for its boot device."""

    service.machine.__class__ = Hanging
    service.boot()
    assert service.node.state is State.WAITING
    service.carry_out(event)
    assert service.machine.commands == ["boot pxe", "power on", "power off", "clear pxe"]
    assert ended(service, event)


def test_an_inspection_that_was_called_back_does_not_ask_for_it(service: Service) -> None:
    service.boot()
    service.machine.once = BootDevice.PXE  # set by somebody for the next boot, or used up and still shown
    service.finish()
    assert service.machine.once is BootDevice.PXE


@pytest.mark.parametrize("event", [Event.ABORT, Event.DELETE])
def test_a_worker_killed_after_it_was_set_leaves_it_to_the_next_one(service: Service, event: Event) -> None:
    power = service.machine.set_power

    def killing(_node: Node, _power: Power) -> None:
        service.machine.set_power = power  # type: ignore[method-assign]
        raise KilledError

    service.machine.set_power = killing  # type: ignore[method-assign]
    service.start()
    with pytest.raises(KilledError):
        service.work()
    assert service.machine.once is BootDevice.PXE
    service.submit(event)
    take_over(service)
    service.work()
    assert ended(service, event)
    assert service.machine.once is None


def ended(service: Service, event: Event) -> bool:
    """Whether the event has had its effect: the node is in error, or gone."""
    try:
        return service.node.state is State.ERROR
    except NotFoundError:
        return event is Event.DELETE


def test_a_node_that_is_deleted_while_its_inspection_starts_leaves_nothing_behind(service: Service) -> None:
    """As an orphan whose deletion was requested just before somebody started its inspection."""
    take = service.machine.set_boot_device

    def deleting(node: Node, device: BootDevice, *, persistent: bool) -> None:
        take(node, device, persistent=persistent)
        service.submit(Event.DELETE)
        service.clock.now += 2.0

    service.machine.set_boot_device = deleting  # type: ignore[method-assign]
    service.boot()
    assert ended(service, Event.DELETE)
    assert (service.machine.once, service.machine.power) == (None, Power.OFF)


def test_a_worker_killed_while_it_deletes_a_node_leaves_that_to_the_next_one(service: Service) -> None:
    clear = service.machine.clear_boot_device

    def killing(_node: Node, _device: BootDevice) -> bool:
        service.machine.clear_boot_device = clear  # type: ignore[method-assign]
        raise KilledError

    service.machine.clear_boot_device = killing  # type: ignore[method-assign]
    service.boot()
    service.machine.once = BootDevice.PXE  # it hangs before it looks for it
    service.submit(Event.DELETE)
    dies_and_is_replaced(service)
    assert ended(service, Event.DELETE)
    assert service.machine.once is None


@pytest.mark.parametrize("lost", [False, True])
def test_a_node_that_nobody_inspects_is_deleted_without_a_word_to_its_bmc(service: Service, lost: bool) -> None:
    asked: list[str] = []

    def fail(command: str) -> BmcError | None:
        asked.append(command)
        return fails_with(command, transient=True)(command) if lost else None

    service.machine.once = BootDevice.PXE  # somebody else's
    service.machine.fail = fail
    service.carry_out(Event.DELETE)
    assert ended(service, Event.DELETE)
    assert (service.machine.once, asked) == (BootDevice.PXE, [])


def test_a_lost_bmc_does_not_keep_a_node_from_being_deleted(service: Service) -> None:
    service.boot()
    service.machine.fail = lambda command: fails_with(command, transient=True)(command)
    service.carry_out(Event.DELETE)
    assert ended(service, Event.DELETE)


def test_a_worker_killed_while_it_takes_it_back_leaves_that_to_the_next_one(service: Service) -> None:
    clear = service.machine.clear_boot_device
    service.machine.fail = fails_with("power on", transient=False)

    def killing(_node: Node, _device: BootDevice) -> bool:
        service.machine.clear_boot_device = clear  # type: ignore[method-assign]
        raise KilledError

    service.machine.clear_boot_device = killing  # type: ignore[method-assign]
    service.start()
    dies_and_is_replaced(service)
    assert service.node.state is State.ERROR
    assert service.machine.once is None


def test_workers_that_all_die_leave_no_boot_device_behind(service: Service) -> None:
    def killing(_node: Node, _power: Power) -> None:
        raise KilledError

    service.machine.set_power = killing  # type: ignore[method-assign]
    service.start()
    for number in range(3):
        with pytest.raises(KilledError):
            service.work()
        service.kill(f"m{number + 1}")
        service.worker = service.new_worker(f"m{number + 2}")
    del service.machine.set_power  # type: ignore[method-assign]
    service.work()
    assert service.node.state is State.ERROR
    assert service.machine.once is None


def test_what_cannot_be_taken_back_is_noted(service: Service) -> None:
    service.machine.fail = lambda command: (
        fails_with("power on", transient=False)(command) or fails_with("clear", transient=True)(command)
    )
    service.boot()
    assert service.machine.once is BootDevice.PXE
    (said,) = warnings(service)
    assert "the network as its next boot device" in said


def test_a_driver_that_cannot_take_it_back_says_what_the_bmc_still_has(service: Service) -> None:
    service.machine.__class__ = Unforgetting
    service.worker = service.new_worker("m1")
    service.machine.fail = fails_with("power on", transient=False)
    service.boot()
    (said,) = warnings(service)
    assert said.startswith("the BMC still has the network as its next boot device")


def test_a_boot_order_that_is_the_operators_is_left_alone(service: Service) -> None:
    set_field(service, management_interface="noop")
    service.machine.once = BootDevice.PXE
    service.machine.fail = fails_with("power on", transient=False)
    service.boot()
    assert service.machine.once is BootDevice.PXE


class Inserting(AbleMachine):
    """It boots once from the image that is inserted."""

    def insert_ramdisk(self, node: Node, image: Image) -> str | None:
        self.once = BootDevice.CDROM
        return super().insert_ramdisk(node, image)


def test_virtual_media_are_ejected_and_not_the_next_boot_device_any_more() -> None:
    service = able()
    service.machine.__class__ = Inserting
    service.machine.fail = fails_with("power on", transient=False)
    service.boot()
    assert (machine(service).drive, service.machine.once) == (None, None)
    assert service.machine.commands == ["insert", "eject", "clear cdrom"]
