"""Outages, and requests that take their worker along: what counts, how it ends, and what the timeline shows."""

from __future__ import annotations

from typing import Any

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.core.states import Event
from ferroscope.worker.pool import Dispatcher
from ferroscope.worker.slots import BmcSlots
from ferroscope_client.core.obstacles import Lane
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service
from tests.fast.worker.test_delivery import KilledError


def processed(service: Service, instead: Any) -> None:
    """Bring an inspection to ``finish``, of which the task is ``instead``."""
    service.boot()
    service.call_back()
    service.worker.tasks = {**service.worker.tasks, Event.FINISH: instead}


def killing(*_given: object) -> Any:
    raise KilledError


def lose(service: Service, number: int) -> None:
    """Let the database be away for longer than heartbeats are valid, and somebody else go on."""
    service.clock.now += 1e7
    tasks = service.worker.tasks
    service.worker = service.new_worker(f"o{number}")
    service.worker.tasks = tasks
    service.clock.now += 5e5
    service.beat(f"o{number}")


def test_five_outages_do_not_end_an_inspection_and_the_timeline_shows_them(service: Service) -> None:
    finish = service.worker.tasks[Event.FINISH]
    processed(service, killing)
    for number in range(5):
        with pytest.raises(KilledError):
            service.work()
        lose(service, number)
    service.worker.tasks = {**service.worker.tasks, Event.FINISH: finish}
    service.work()
    assert service.node.state is State.FINISHED
    again = [entry.message for entry in service.journal if entry.step == "delivered again"]
    assert again[-1] == "attempt 1 of finish; lost: outage of the database (5 times)"


def test_a_finish_that_takes_its_worker_along_each_time_keeps_the_results(service: Service) -> None:
    processed(service, killing)
    for number in range(1, 4):
        with pytest.raises(KilledError):
            service.work()
        service.kill(f"m{number}")
        tasks = service.worker.tasks
        service.worker = service.new_worker(f"m{number + 1}")
        service.worker.tasks = tasks
    service.work()
    assert service.node.state is State.FINISHED
    assert service.node.properties
    [left] = [entry for entry in service.journal if entry.step == "not carried out"]
    assert left.reason == "attempts-exhausted"
    assert "may still be on" in left.message


def test_a_finish_with_a_bug_keeps_the_results(service: Service) -> None:
    def broken(*_given: object) -> Any:
        raise ZeroDivisionError

    processed(service, broken)
    service.work()
    assert service.node.state is State.FINISHED
    [left] = [entry for entry in service.journal if entry.step == "not carried out"]
    assert left.reason == "internal"


def test_a_start_whose_cleaning_up_takes_the_worker_along_ends(service: Service) -> None:
    begun: list[str] = []

    def killed(command: str) -> None:
        if begun or command == "power off":
            begun.append(command)
            raise KilledError

    service.machine.power, service.machine.fail = Power.ON, killed  # type: ignore[assignment]
    service.start()
    for number in range(1, 5):  # the last one cleans up
        with pytest.raises(KilledError):
            service.work()
        service.kill(f"m{number}")
        service.worker = service.new_worker(f"m{number + 1}")
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "attempts-exhausted"


def test_a_task_that_an_outage_interrupts_is_repeated_and_the_timeline_shows_it(service: Service) -> None:
    finish, failures = service.worker.tasks[Event.FINISH], [True] * 5

    def cut(*given: Any) -> Any:
        if failures:
            failures.pop()
            raise StoreUnavailableError("the server closed the connection")
        return finish(*given)

    processed(service, cut)
    service.work()
    assert service.node.state is State.FINISHED
    retries = [entry for entry in service.journal if entry.step == "retry"]
    assert [entry.reason for entry in retries] == ["store-unavailable"] * 5


def test_nothing_is_claimed_while_the_own_heartbeat_does_not_get_through(service: Service) -> None:
    service.claim_valid_for = lambda _confirmed_at: 0.0
    service.worker = service.new_worker("m2")
    service.start()
    lane = Dispatcher(Lane.BMC, BmcSlots(4, 1, clock=service.clock, stop=service.stop), service.worker)
    assert lane.step() == "waiting for a heartbeat"
    assert [request.attempt for request in service.pending] == [0]


@pytest.mark.parametrize("ending", [True, False], ids=["finish", "step"])
def test_an_end_is_not_undone_by_a_crash_of_the_database_and_a_step_may_be(service: Service, ending: bool) -> None:
    service.start()
    if ending:
        service.work()
        service.call_back()
    written: list[bool] = []
    write = service.store.write
    service.store.write = lambda work, *, durable=True: (written.append(durable), write(work, durable=durable))[1]  # type: ignore[method-assign]
    service.work()
    assert service.node.state is (State.FINISHED if ending else State.WAITING)
    assert written[-1] is ending
