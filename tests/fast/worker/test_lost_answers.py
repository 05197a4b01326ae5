"""A commit whose answer was lost: the worker repeats it, and does not take its own changes for another worker's.

The worker's first write hands the claim on; what happens if that answer is lost is covered by the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from unittest import mock

import pytest

from ferroscope.contracts.bmc import Power
from ferroscope.contracts.errors import BmcError, OutcomeUnknownError, StoreUnavailableError
from ferroscope.core.states import Event
from ferroscope.db import Store, Transaction
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import Service
from tests.fast.worker.test_delivery import KilledError

T = TypeVar("T")


class Forgetful:
    """A store that commits the write number ``lost``, and then says that it cannot be reached."""

    def __init__(self, store: Store, lost: int) -> None:
        self._store = store
        self._left = lost

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        result = self._store.write(work, durable=durable)
        self._left -= 1
        if self._left == 0:
            raise OutcomeUnknownError("the answer got lost")
        return result

    def read(self, work: Callable[[Transaction], T], *, snapshot: bool = True) -> T:
        return self._store.read(work, snapshot=snapshot)


def waiting(service: Service) -> None:
    service.boot()
    assert service.node.state is State.WAITING


def _lose_the_answer_to_the_claim(service: Service) -> None:
    """Commit the next claim, with the state that it saves, and answer that the database is away."""
    write = service.store.write

    def lost(work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        write(work, durable=durable)
        raise OutcomeUnknownError("the answer got lost")

    with mock.patch.object(service.store, "write", lost), pytest.raises(OutcomeUnknownError):
        service.worker.step()
    assert service.pending[0].begun


@pytest.mark.parametrize("lost", ["claim", "end"])
@pytest.mark.parametrize("again", [False, True], ids=["callback", "reapply"])
def test_data_is_processed_if_the_answer_to_its_claim_or_its_end_got_lost(
    service: Service, again: bool, lost: str
) -> None:
    waiting(service)
    service.call_back()
    if again:
        service.work()
        service.reapply()
    if lost == "claim":
        _lose_the_answer_to_the_claim(service)
    else:
        service.use(Forgetful(service.store, 2))
    service.work()
    assert service.node.state is State.FINISHED, service.steps
    assert (service.node.last_error, service.pending) == (None, [])


def test_a_database_that_is_away_during_a_task_costs_no_attempt(service: Service) -> None:
    waiting(service)
    service.call_back()
    store, reads = service.store, iter(range(5))

    class Away(Forgetful):
        def read(self, work: Callable[[Transaction], T], *, snapshot: bool = True) -> T:
            if next(reads, None) is not None:
                raise StoreUnavailableError("away")
            return store.read(work, snapshot=snapshot)

    service.use(Away(store, -1))
    service.work()
    assert service.node.state is State.FINISHED, service.steps


def _die_at_each_start(service: Service) -> None:
    """Start an inspection whose machine boots, and whose every attempt kills its worker: the next one gives it up."""

    def die(_command: str) -> None:
        if service.machine.commands[-1:] == ["power on"]:
            raise KilledError

    service.machine.power, service.machine.fail = Power.ON, die
    service.start()
    for number in range(1, 4):
        with pytest.raises(KilledError):
            service.work()
        service.kill(f"m{number}")
        service.worker = service.new_worker(f"m{number + 1}")


def test_a_database_that_is_away_while_a_given_up_start_is_powered_off_keeps_no_claim(service: Service) -> None:
    _die_at_each_start(service)
    store, looks = Away(service.store), iter(range(1))

    def goes(_command: str) -> None:
        if next(looks, None) is not None:
            store.away = True
            service.clock.now += 100.0  # so long that the claim has to be confirmed before a command

    service.machine.fail = goes
    service.use(store)
    service.work()
    assert service.node.state is State.ERROR
    assert service.inspection.reason == "attempts-exhausted"
    assert service.machine.commands[-2:] == ["power off", "power on"]  # out of the ramdisk


def test_an_abort_while_a_given_up_start_is_powered_off_ends_no_worker(service: Service) -> None:
    _die_at_each_start(service)
    commands = iter(range(1))

    def aborted(_command: str) -> None:
        if next(commands, None) is not None:
            service.submit(Event.ABORT)
            service.clock.now += 2.0  # so long that the next look at what is pending is due
            raise BmcError("busy", transient=True)

    service.machine.fail = aborted
    service.work()
    assert service.inspection.reason == "aborted"
    assert service.machine.power is Power.OFF


class Away(Forgetful):
    """A store that refuses the next write once it is ``away``."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, 0)
        self.away = False

    def write(self, work: Callable[[Transaction], T], *, durable: bool = True) -> T:
        if self.away:
            self.away = False
            raise StoreUnavailableError("away")
        return super().write(work, durable=durable)
