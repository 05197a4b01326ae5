"""A worker that was frozen in the middle of its commands, and replaced: it commands nothing when it wakes up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.core.model import Node
from ferroscope.remote import command_fence
from ferroscope.worker.loop import Worker
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service


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


def freeze_at_write(service: Service, number: int, *, meanwhile: Callable[[Worker], None]) -> None:
    """Freeze worker m1 while its write of this number, counted from now, is being answered."""
    write, writes = service.store.write, [0]

    def frozen(work: Any, *, durable: bool = True) -> Any:
        answer = write(work, durable=durable)
        writes[0] += 1
        if writes[0] == number:
            service.clock.now += 60.0
            service.kill("m1")
            meanwhile(service.new_worker("m2"))
            service.machine.commands.append("-- m1 wakes up")
        return answer

    service.store.write = frozen  # type: ignore[method-assign]


class Membership:
    """What is sure of m1: of what was confirmed at ``since`` or later, until ``until``."""

    def __init__(self, service: Service) -> None:
        self._clock = service.clock
        self.since, self.until = 0.0, service.clock.now + 4.5

    def claim_valid_for(self, confirmed_at: float) -> float:
        return max(0.0, self.until - self._clock.now) if confirmed_at >= self.since else 0.0

    def beat(self) -> None:
        """It counts as alive again, and others may have taken what was its own."""
        self.since, self.until = self._clock.now, self._clock.now + 4.5


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
    service.boot()
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
    service.boot()
    assert service.machine.commands.count("power on") == 1
    assert service.node.state is State.WAITING


def test_a_worker_frozen_while_its_claim_was_being_confirmed_commands_nothing(service: Service) -> None:
    """What it heard when it woke up was true when it fell asleep."""
    service.machine.power = Power.ON
    service.start()
    claim = service.claim()
    assert claim is not None
    freeze_at_write(service, 1, meanwhile=one_step)
    said, _ = service.worker.carry_out(claim)
    assert "lost" in said
    assert service.machine.commands[-1] == "-- m1 wakes up", service.machine.commands
    assert service.machine.power is Power.ON
    assert service.node.state is State.WAITING


def test_a_worker_frozen_while_the_end_was_handed_to_it_does_not_switch_the_next_inspection_off(
    service: Service,
) -> None:
    service.boot()
    service.call_back()
    claim = service.claim()
    assert claim is not None

    def finish_and_begin_anew(successor: Worker) -> None:
        successor.step()
        service.start()
        successor.step()

    freeze_at_write(service, 2, meanwhile=finish_and_begin_anew)
    said, follow = service.worker.carry_out(claim)
    assert follow is not None, said
    said, _ = service.worker.carry_out(follow.claim, follow)
    assert "lost" in said
    assert service.machine.commands[-1] == "-- m1 wakes up", service.machine.commands
    assert service.node.state is State.WAITING


@pytest.mark.parametrize("replaced", [True, False])
@pytest.mark.parametrize("heart", ["beats again first", "still sleeps"])
def test_a_worker_frozen_between_confirmation_and_command_sends_nothing(
    service: Service, heart: str, replaced: bool
) -> None:
    service.machine.power = Power.ON
    membership = Membership(service)
    service.claim_valid_for = membership.claim_valid_for
    service.worker = service.new_worker("m1")
    service.start()
    power, armed = service.machine.set_power, [True]

    def slow(node: Node, wanted: Power) -> None:
        """Be frozen where drivers log in and read, just before the bytes that change something."""
        if armed:
            armed.clear()
            service.clock.now += 60.0
            if replaced:
                service.kill("m1")
                service.claim_valid_for = lambda _confirmed_at: 1.0
                service.new_worker("m2").step()
                service.machine.commands.append("-- m1 wakes up")
            if heart == "beats again first":
                membership.beat()
        command_fence.check()
        power(node, wanted)

    pause = service.stop.wait

    def beating(timeout: float | None = None) -> bool:
        stopped: bool = pause(timeout)
        membership.beat()
        return stopped

    service.stop.wait = beating
    service.machine.set_power = slow  # type: ignore[method-assign]
    said = service.worker.step()
    commands = service.machine.commands
    assert commands.count("power off") == 1, commands
    assert commands.count("power on") == 1
    assert service.machine.power is Power.ON
    assert service.node.state is State.WAITING
    assert ("lost" in said) is replaced
    assert not replaced or commands[-1] == "-- m1 wakes up", commands


def test_an_attempt_that_is_given_back_commands_nothing_more(service: Service) -> None:
    service.machine.power = Power.ON
    attempts: list[Any] = []
    begin = service.worker.begin_attempt

    def remember(*arguments: Any) -> Any:
        attempts.append(begin(*arguments))
        return attempts[-1]

    service.worker.begin_attempt = remember  # type: ignore[method-assign]
    ask = service.machine.get_power

    def given_back(node: Node) -> Power:
        attempts[0].revoke()
        service.store.write(lambda tx: tx.requests.retry(attempts[0].claim, 0.0, counted=False))
        return ask(node)

    service.machine.get_power = given_back  # type: ignore[method-assign]
    service.start()
    assert "lost" in service.worker.step()
    assert service.machine.commands == []
