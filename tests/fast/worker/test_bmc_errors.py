"""BMCs that fail, hesitate or never follow: what is tried again, and what a failed start takes back."""

from __future__ import annotations

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Service, settings
from tests.support.rows import each


def test_a_transient_bmc_error_is_tried_again(service: Service) -> None:
    errors = [BmcError("busy", transient=True)]
    service.machine.fail = lambda _command: errors.pop() if errors else None
    service.boot()
    assert service.node.state is State.WAITING
    assert "retry" in service.steps


def test_transient_errors_end_after_three_attempts_with_the_reason(service: Service) -> None:
    service.machine.fail = lambda _command: BmcError("no answer", transient=True)
    service.boot()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "bmc-unreachable"
    assert "3 attempts" in (service.node.last_error or "")


def test_a_permanent_bmc_error_fails_at_once(service: Service) -> None:
    service.machine.fail = lambda command: BmcError("denied", transient=False) if command == "power on" else None
    service.boot()
    assert service.inspection.reason == "bmc-refused"
    assert "retry" not in service.steps


def test_a_power_state_that_never_follows_is_an_error_not_a_hang(service: Service) -> None:
    service.machine.set_power = lambda *_: None  # type: ignore[method-assign]
    service.boot()
    assert service.node.state is State.ERROR
    assert "accepted power on, and the machine is still off" in (service.node.last_error or "")
    assert service.inspection.reason == "power-failed"


def test_a_bmc_that_fails_at_the_end_does_not_fail_the_inspection(service: Service) -> None:
    service.boot()
    service.machine.fail = lambda _command: BmcError("gone", transient=True)
    service.finish()
    assert service.node.state is State.FINISHED
    assert any(entry.severity == "WARNING" and "gone" in entry.message for entry in service.journal)


def test_a_bmc_that_hesitates_once_at_the_end_still_powers_off(service: Service) -> None:
    service.boot()
    errors = [BmcError("busy", transient=True)]
    service.machine.fail = lambda _command: errors.pop() if errors else None
    service.finish()
    assert service.machine.power is Power.OFF


def test_an_unknown_driver_fails_with_its_name(service: Service) -> None:
    def rename(tx: object) -> None:
        node = tx.nodes.get(NODE)  # type: ignore[attr-defined]
        node.driver = "nothing"
        tx.nodes.update(node)  # type: ignore[attr-defined]

    service.store.write(rename)
    service.boot()
    assert "nothing" in (service.node.last_error or "")
    assert service.inspection.reason == "driver-unknown"


@each("power_off", [False, True])
@each("transient", [False, True])
@each("was", [Power.ON, Power.OFF])
def test_a_machine_that_was_on_is_not_left_off_by_a_start_that_fails(
    was: Power, transient: bool, power_off: bool
) -> None:
    service = Service(settings(power_off=power_off))
    service.machine.power = was
    error = BmcError("HTTP 404", transient=transient)
    service.machine.fail = lambda command: error if command.startswith("boot") else None
    service.boot()
    assert service.node.state is State.ERROR
    assert service.machine.power is was
    told = [entry.message for entry in service.journal if "is on again" in entry.message]
    assert len(told) == (was is Power.ON)


@pytest.mark.parametrize(
    ("was", "dies_at", "commands"),
    [
        (Power.ON, "get", []),
        (Power.OFF, "get", []),
        (Power.ON, "boot", ["power off", "power on"]),
        # It is in the ramdisk, or about to boot it: it is powered off, and on again if its own system ran before.
        (Power.ON, "boots", ["power off", "boot pxe", "power on", "power off", "power on"]),
        (Power.OFF, "boots", ["boot pxe", "power on", "power off"]),
    ],
)
def test_a_start_whose_workers_all_died_is_undone_as_far_as_it_got(
    service: Service, was: Power, dies_at: str, commands: list[str]
) -> None:
    service.machine.power = was

    def die(command: str) -> None:
        booted = service.machine.commands[-1:] == ["power on"]
        if command == dies_at or (dies_at == "boots" and booted):
            raise KeyboardInterrupt

    service.start()
    for number in range(service.settings.worker.max_attempts):
        service.machine.fail = die
        with pytest.raises(KeyboardInterrupt):
            service.work()
        service.kill(f"m{number + 1}")
        service.worker = service.new_worker(f"m{number + 2}")
    service.machine.fail = lambda _command: None
    service.work()
    assert service.inspection.reason == "attempts-exhausted"
    assert service.machine.commands == commands
    assert service.machine.power is was
