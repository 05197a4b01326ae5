"""A worker that was frozen in the middle of its commands, and replaced: it commands nothing when it wakes up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ferroscope.domain.model import Node
from ferroscope.domain.states import State
from ferroscope.ports.bmc import Power
from ferroscope.worker.loop import Worker
from tests.unit.worker.conftest import Service


def freeze(service: Service, *, seconds: float, meanwhile: Callable[[Worker], None] | None) -> None:
    """Freeze worker m1 while its next question for the power state is being answered.

    ``meanwhile`` is what its successor does, who has taken over by then.
    """
    ask, armed = service.machine.get_power, [True]

    def frozen(node: Node) -> Power:
        answer = ask(node)
        if armed:
            armed.clear()
            service.clock.now += seconds
            if meanwhile is not None:
                service.kill("m1")
                meanwhile(service.new_worker("m2"))
                service.machine.commands.append("-- m1 wakes up")
        return answer

    service.machine.get_power = frozen  # type: ignore[method-assign]


def one_step(successor: Worker) -> None:
    successor.step()


@pytest.mark.parametrize("power", [Power.ON, Power.OFF])
def test_a_frozen_worker_that_was_replaced_commands_nothing(service: Service, power: Power) -> None:
    service.machine.power = power
    freeze(service, seconds=60.0, meanwhile=one_step)
    service.start()
    said = service.worker.step()
    assert "lost" in said
    commands = service.machine.commands
    assert commands[-1] == "-- m1 wakes up", commands
    assert commands.count("power on") == 1
    assert service.node.state is State.WAITING


def test_a_frozen_worker_that_was_replaced_does_not_switch_the_next_inspection_off(service: Service) -> None:
    service.start()
    service.work()
    service.call_back()

    def finish_and_begin_anew(successor: Worker) -> None:
        successor.step()
        assert service.node.state is State.FINISHED
        service.start()
        successor.step()

    freeze(service, seconds=60.0, meanwhile=finish_and_begin_anew)
    said = service.worker.step()
    assert "lost" in said
    assert service.machine.commands[-1] == "-- m1 wakes up"
    assert service.machine.power is Power.ON
    assert service.node.state is State.WAITING


def test_a_slow_worker_that_was_not_replaced_goes_on(service: Service) -> None:
    service.machine.power = Power.ON
    freeze(service, seconds=60.0, meanwhile=None)
    service.start()
    service.work()
    assert service.machine.commands.count("power on") == 1
    assert service.node.state is State.WAITING
