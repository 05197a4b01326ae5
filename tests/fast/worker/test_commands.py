"""Commands beside inspections: what one does never touches an inspection that was started meanwhile."""

from __future__ import annotations

import pytest

from ferroscope.contracts.errors import BmcError
from ferroscope.core.states import COMMANDS, Event
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service
from tests.fast.worker.test_boot import able
from tests.support.rows import each


def start_during_the_command(service: Service, *, fail: bool) -> None:
    """Let a power command be under way while an operator starts an inspection."""
    started = False

    def begin(command: str) -> BmcError | None:
        nonlocal started
        if not started:
            started = True
            service.start()
        refused = fail and command == "power on"
        return BmcError("no", transient=False) if refused else None

    service.submit(Event.SET_POWER, {"target": "power on"})
    service.machine.fail = begin
    service.clock.now += 1.0
    service.worker.step()
    service.machine.fail = lambda _command: None


@pytest.mark.parametrize("fail", [False, True])
def test_an_inspection_that_was_started_during_a_command_goes_on(service: Service, fail: bool) -> None:
    start_during_the_command(service, fail=fail)
    assert service.node.state is State.STARTING
    assert service.node.last_error is None
    service.work()
    assert service.node.state is State.WAITING
    assert service.inspection.state is State.WAITING


def test_a_command_that_fails_after_a_failed_inspection_leaves_its_reason_alone(service: Service) -> None:
    service.start()
    service.carry_out(Event.ABORT)
    assert service.node.state is State.ERROR
    service.machine.fail = lambda command: BmcError("no", transient=False) if command == "power on" else None
    service.carry_out(Event.SET_POWER, {"target": "power on"})
    assert service.inspection.reason == "aborted"
    assert "bmc-refused" in (service.node.last_error or "")


PAYLOADS = {
    Event.SET_POWER: {"target": "power on"},
    Event.SET_BOOT_DEVICE: {"boot_device": "pxe"},
}


@each("repair", PAYLOADS)
@each("broken", PAYLOADS)
def test_the_error_of_a_command_goes_with_the_next_that_succeeds(broken: Event, repair: Event) -> None:
    """ironic/conductor/utils.py, node_power_action: unless it is that of a failed inspection."""
    assert set(PAYLOADS) < COMMANDS
    service = able()
    service.machine.fail = lambda _command: BmcError("no", transient=False)
    service.carry_out(broken, dict(PAYLOADS[broken]))
    assert "bmc-refused" in (service.node.last_error or "")
    service.machine.fail = lambda _command: None
    service.carry_out(repair, dict(PAYLOADS[repair]))
    assert service.node.last_error is None


@each("command", PAYLOADS)
def test_the_error_of_a_failed_inspection_outlives_a_command_that_succeeds(command: Event) -> None:
    service = able()
    service.start()
    service.carry_out(Event.ABORT)
    failed = service.node.last_error
    service.carry_out(command, dict(PAYLOADS[command]))
    assert failed
    assert service.node.last_error == failed
