"""What a time-out counts: what the BMC, the machine or a hook had, never what an inspection waited for us."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError
from ferroscope.core.states import Event
from ferroscope.periodic.timeouts import Timeouts
from ferroscope.worker.start import LEASE
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service, settings
from tests.support import examples

TIMEOUT = 1800.0
LONG = 10 * TIMEOUT


def look(service: Service) -> str:
    """Look for overdue inspections; return the events that wait then."""
    task = Timeouts(service.store, timeout=TIMEOUT, period=30.0, process="periodic")
    task.step(examples.UNLED)
    return " ".join(request.event for request in service.pending)


def interrupting(service: Service, command: str, act: Callable[[], object]) -> None:
    """Let something happen at the moment of a command, once."""
    acts = [act]

    def fail(asked: str) -> BmcError | None:
        if asked == command and acts:
            acts.pop()()
        return None

    service.machine.fail = fail


def note(service: Service, **fields: Any) -> None:
    """Change the inspection, as the api or a release before would."""
    ident = str(service.node.inspection)
    service.store.write(lambda tx: tx.inspections.update(ident, **fields))


def test_a_start_that_waits_for_a_worker_is_not_overdue(service: Service) -> None:
    service.start()
    service.clock.now += LONG
    assert look(service) == "inspect"
    service.work()
    assert service.node.state is State.WAITING


def test_a_start_that_waits_for_its_turn_is_not_overdue() -> None:
    base = settings()
    service = Service(msgspec.structs.replace(base, worker=msgspec.structs.replace(base.worker, reboot_throttle=10.0)))
    service.store.write(lambda tx: tx.leases.acquire(LEASE, "other", 1e6))
    service.start()
    for _ in range(5):
        service.worker.step()
        service.clock.now += LONG
        assert look(service) == "inspect"
    assert service.inspection.clock_since is None


def test_the_clock_of_a_start_runs_while_it_is_carried_out(service: Service) -> None:
    seen: list[float | None] = []
    interrupting(service, "get", lambda: seen.append(service.inspection.clock_since))
    service.start()
    service.clock.now += LONG
    began = service.clock.now
    service.work()
    assert seen[0] is not None
    assert seen[0] >= began


def test_a_start_whose_bmc_takes_too_long_commands_nothing_more_and_says_so(service: Service) -> None:
    def pass_time() -> None:
        service.clock.now += TIMEOUT + 1.0
        look(service)

    service.machine.power = Power.ON
    interrupting(service, "power off", pass_time)
    service.boot()
    assert service.inspection.reason == "start-timeout"
    assert set(service.machine.commands) == {"power off"}


def test_a_start_that_took_too_long_says_how_its_last_try_ended(service: Service) -> None:
    stuck = "the BMC accepted power on, and the machine is still off after 60 s"
    errors = [BmcError(stuck, transient=True, reason=Reason.POWER_FAILED)]
    waits = [TIMEOUT + 1.0]

    def fail(command: str) -> BmcError | None:
        if command == "power off" and not errors and waits:
            service.clock.now += waits.pop()
            look(service)
        return errors.pop() if errors else None

    service.machine.power = Power.ON
    service.machine.fail = fail
    service.boot()
    assert service.inspection.reason == "start-timeout"
    assert f" s; the last attempt: {stuck} (start-timeout)" in str(service.node.last_error)


@pytest.mark.parametrize(("event", "end"), [(Event.ABORT, "aborted"), (Event.DELETE, "")])
def test_nothing_is_commanded_for_an_inspection_whose_end_is_decided(service: Service, event: Event, end: str) -> None:
    def decide() -> None:
        service.clock.now += 2.0
        service.submit(event)

    service.machine.power = Power.ON
    interrupting(service, "power off", decide)
    service.boot()
    assert set(service.machine.commands) == {"power off"}
    if end:
        assert service.inspection.reason == end


def test_an_abort_is_noticed_while_a_power_state_is_waited_for(service: Service) -> None:
    asked: list[float] = []

    class Lagging:
        def __getattr__(self, name: str) -> Any:
            return getattr(service.machine, name)

        def get_power(self, _node: object) -> Power:
            if asked and "power off" in service.machine.commands and len(service.pending) == 1:
                service.submit(Event.ABORT)
            asked.append(service.clock.now)
            return Power.ON if len(asked) < 30 else Power.OFF

    service.machine.power = Power.ON
    service.worker.drivers = {"machine": Lagging()}  # type: ignore[dict-item]
    service.start()
    began = service.clock.now
    service.worker.step()
    assert [request.event for request in service.pending] == [Event.ABORT]
    assert service.clock.now - began < 4.0
    service.work()
    assert service.inspection.reason == "aborted"


def test_a_callback_that_is_stored_is_never_overdue(service: Service) -> None:
    service.boot()
    service.call_back()
    note(service, digest="a" * 64, clock_since=None)
    service.clock.now += LONG
    assert look(service) == "continue"
    service.work()
    assert service.node.state is State.FINISHED


def test_nor_is_one_that_came_before_the_power_on_was_saved(service: Service) -> None:
    def call() -> None:
        service.call_back()
        note(service, digest="a" * 64)

    interrupting(service, "power on", call)
    service.start()
    service.worker.step()
    assert service.node.state is State.WAITING
    assert service.inspection.clock_since is None
    service.clock.now += LONG
    assert look(service) == "continue"


def test_a_time_out_of_what_has_gone_on_meanwhile_is_dropped(service: Service) -> None:
    service.boot()
    service.clock.now += TIMEOUT + 1.0
    assert look(service) == "timeout"
    service.call_back()
    note(service, digest="a" * 64, clock_since=None)
    service.work()
    assert service.node.state is State.FINISHED


def test_a_start_is_given_its_time_anew_after_its_worker_died(service: Service) -> None:
    class DeadError(BaseException):
        pass

    def die() -> None:
        raise DeadError

    interrupting(service, "get", die)
    service.start()
    with pytest.raises(DeadError):
        service.worker.step()
    service.kill("m1")
    service.clock.now += TIMEOUT + 1.0
    look(service)
    service.worker = service.new_worker("m2")
    service.work()
    assert service.node.state is State.WAITING, service.inspection.reason


def test_an_inspection_of_a_release_before_times_out_by_when_it_began_to_wait(service: Service) -> None:
    service.boot()
    note(service, clock_since=None)
    service.clock.now += TIMEOUT + 1.0
    assert look(service) == "timeout"
    service.work()
    assert service.inspection.reason == "timeout"


def test_a_bmc_that_does_not_answer_is_asked_less_and_less_often(service: Service) -> None:
    at: list[float] = []

    def fail(_command: str) -> BmcError:
        at.append(service.clock.now)
        return BmcError("no answer", transient=True)

    service.machine.fail = fail
    service.start()
    for _ in range(40):
        service.worker.step()
        service.clock.now += 0.5
        if service.node.state is State.ERROR:
            break
    first, second, third = sorted(set(at))[:3]
    assert third - second > second - first
