"""At least once: what a worker that dies, stalls or is stopped leaves behind, and who goes on."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from sqlalchemy import text

from ferroscope import transition
from ferroscope.config.options import WorkerSettings
from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import ClaimLostError, NotFoundError
from ferroscope.core.states import Event
from ferroscope.periodic.timeouts import Timeouts
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.services import StoppedError
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service, settings
from tests.support import examples


class KilledError(BaseException):
    """Nothing catches it: the process is gone at this point."""


def die_at(service: Service, command: str) -> None:
    """Kill the worker when the machine receives ``command``, after it took effect."""
    set_power, armed = service.machine.set_power, [True]

    def killing(node: Any, power: Power) -> None:
        set_power(node, power)
        if power == command and armed.pop():
            armed.append(False)
            raise KilledError

    service.machine.set_power = killing  # type: ignore[method-assign]


def take_over(service: Service) -> None:
    """The worker is gone; another one takes what it held."""
    service.kill("m1")
    service.worker = service.new_worker("m2")


def dies_and_is_replaced(service: Service) -> None:
    """The worker is killed at its work, and another one goes on with it."""
    with pytest.raises(KilledError):
        service.work()
    take_over(service)
    service.work()


def test_a_worker_killed_after_power_on_does_not_cause_a_second_reboot(service: Service) -> None:
    die_at(service, "power on")
    service.start()
    dies_and_is_replaced(service)
    assert service.node.state is State.WAITING
    assert service.machine.commands.count("power on") == 1
    assert "already on" in service.steps


def test_a_worker_killed_before_power_on_is_replaced_and_the_machine_boots(service: Service) -> None:
    service.machine.power = Power.ON
    die_at(service, "power off")
    service.start()
    dies_and_is_replaced(service)
    assert service.node.state is State.WAITING
    assert service.machine.commands.count("power on") == 1


def kill_in_processing(service: Service) -> None:
    service.boot()
    service.call_back()
    tasks = dict(service.worker.tasks)
    event = service.pending[0].event
    original = tasks[event]

    def killed(attempt: Attempt) -> Any:
        original(attempt)
        raise KilledError

    service.worker.tasks = tasks | {event: killed}
    with pytest.raises(KilledError):
        service.work()


def test_a_worker_killed_in_processing_leaves_nothing_behind_and_the_rerun_finishes(service: Service) -> None:
    kill_in_processing(service)
    assert service.node.state is State.PROCESSING
    assert service.ports == []
    assert service.node.properties == {}
    take_over(service)
    service.work()
    assert service.node.state is State.FINISHED
    assert service.ports == ["02:00:00:00:00:01"]
    assert "delivered again" in service.steps


@pytest.mark.parametrize("before", [State.STARTING, State.WAITING])
def test_an_event_without_a_task_only_moves_the_state(service: Service, before: State) -> None:
    node = service.start()
    if before is State.WAITING:
        service.work()
    else:
        claim = service.claim()
        assert claim is not None
        service.store.write(lambda tx: tx.requests.consume(claim))
    service.store.write(lambda tx: tx.requests.put(transition.request_for(node, Event.WAIT)))
    service.work()
    assert (service.node.state, service.pending) == (State.WAITING, [])
    service.finish()
    assert service.node.state is State.FINISHED


def test_interrupted_error_is_the_strict_reading() -> None:
    strict = msgspec.structs.replace(settings(), worker=WorkerSettings(get_timeout=0.0, interrupted="error"))
    service = Service(strict)
    kill_in_processing(service)
    take_over(service)
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "interrupted"


def test_a_request_that_kills_every_worker_ends_in_error_after_three_attempts(service: Service) -> None:
    kill_in_processing(service)
    for number in range(2, 4):
        service.kill(f"m{number - 1}")
        poisoned = service.worker.tasks
        service.worker = service.new_worker(f"m{number}")
        service.worker.tasks = poisoned
        with pytest.raises(KilledError):
            service.work()
    service.kill("m3")
    service.worker = service.new_worker("m4")
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "attempts-exhausted"


def test_a_callback_whose_workers_died_before_they_began_ends_in_error_with_the_machine_off(service: Service) -> None:
    service.boot()
    service.call_back()
    for number in range(1, 4):
        assert service.claim() is not None  # claimed, and killed before its state was saved
        service.kill(f"m{number}")
        service.worker = service.new_worker(f"m{number + 1}")
    assert service.node.state is State.WAITING
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "attempts-exhausted"
    assert service.machine.power is Power.OFF


def test_a_stalled_worker_that_wakes_up_late_changes_nothing(service: Service) -> None:
    service.boot()
    service.call_back()
    slow = service.worker
    claim = service.claim()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: slow.prepare(tx, claim))
    attempt = slow.begin_attempt(locked, decision)
    outcome = slow.run(attempt)
    take_over(service)
    service.work()
    finished = service.node
    with pytest.raises(ClaimLostError):
        slow.commit(attempt, outcome)
    assert service.node == finished


def test_a_stalled_worker_cannot_record_an_intent(service: Service) -> None:
    service.start()
    slow = service.worker
    claim = service.claim()
    assert claim is not None
    locked, decision = service.store.write(lambda tx: slow.prepare(tx, claim))
    attempt = slow.begin_attempt(locked, decision)
    take_over(service)
    service.work()
    with pytest.raises(ClaimLostError):
        attempt.intend("power on")


def test_a_stopped_task_goes_back_on_the_queue_without_using_up_an_attempt(service: Service) -> None:
    tasks = dict(service.worker.tasks)

    def stopped(*_given: object) -> Any:
        raise StoppedError

    service.start()
    for _ in range(5):
        service.worker.tasks = dict.fromkeys(tasks, stopped)
        service.worker.step()
    service.worker.tasks = tasks
    service.work()
    assert service.node.state is State.WAITING


def test_a_bug_in_a_task_does_not_take_the_worker_along(service: Service) -> None:
    def broken(*_given: object) -> Any:
        raise ZeroDivisionError

    service.start()
    service.worker.tasks = dict.fromkeys(service.worker.tasks, broken)
    service.work()
    assert service.inspection.reason == "internal"
    assert "ZeroDivisionError" in (service.node.last_error or "")


def test_a_node_deleted_while_its_task_runs_ends_the_task_quietly(service: Service) -> None:
    service.start()
    claim = service.claim()
    assert claim is not None
    locked, _decision = service.store.write(lambda tx: service.worker.prepare(tx, claim))
    service.store.write(lambda tx: tx.nodes.remove(locked.node.uuid))
    said, follow = service.worker.carry_out(claim)
    assert follow is None
    assert "lost" in said or "no node" in said


def test_the_follow_up_is_mine_at_once_unless_others_wait(service: Service) -> None:
    service.boot()
    service.call_back()
    claim = service.claim()
    assert claim is not None
    _, follow = service.worker.carry_out(claim)
    assert follow is not None
    assert follow.claim.request.event == "finish"
    assert follow.claim.request.attempt == 1


def overdue(service: Service, timeout: float) -> str:
    task = Timeouts(service.store, timeout=timeout, period=30.0, process="periodic")
    return task.step(examples.UNLED)


def test_a_machine_that_never_calls_back_times_out_and_is_powered_off(service: Service) -> None:
    service.boot()
    service.clock.now += 100.0
    assert "0 overdue" in overdue(service, 1800.0)
    service.clock.now += 1800.0
    assert "1 overdue" in overdue(service, 1800.0)
    overdue(service, 1800.0)
    assert len(service.pending) == 1
    service.work()
    assert service.inspection.reason == "timeout"
    assert service.machine.power is Power.OFF


def test_a_node_that_is_no_longer_tracked_goes_with_everything_that_is_its(service: Service) -> None:
    service.boot()
    service.submit(Event.DELETE)
    service.worker.step()
    with pytest.raises(NotFoundError):
        _ = service.node
    assert service.journal == []
    assert service.pending == []


def test_a_node_in_a_state_of_a_newer_release_is_left_alone_until_the_state_is_known(service: Service) -> None:
    def set_state(state: str) -> None:
        with service.store.engine.begin() as connection:  # type: ignore[attr-defined]
            connection.execute(text("UPDATE nodes SET state = :state"), {"state": state})

    service.start()
    known = service.node.state
    set_state("meditating")
    assert service.worker.step().endswith("left to a worker of a newer release")
    set_state(known)
    assert [request.attempt for request in service.pending] == [0]
    service.work()
    assert service.node.state is State.WAITING
