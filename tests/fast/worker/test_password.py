"""Changing a BMC's password through the worker: whatever happens, one of the stored passwords is that of the BMC."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ferroscope import transition
from ferroscope.contracts.errors import BmcError, OutcomeUnknownError, StoreUnavailableError
from ferroscope.core import bmc_password
from ferroscope.core.model import Node
from ferroscope.core.states import Event
from ferroscope.db import Store, Transaction
from ferroscope.worker.attempt import Attempt
from ferroscope.worker.loop import Worker
from ferroscope_client.core.passwords import PasswordProgress
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import State
from tests.fast.worker.conftest import NODE, Machine, Service, settings

OLD, NEW = "old-Pass.word_12", "new-Pass.word_12"
PENDING = "machine_pending_password"


class Killed(BaseException):
    """The process is gone: nothing more is written."""


class GuardedMachine(Machine):
    """A machine whose BMC has a password. ``upon`` is called with what has just happened at the BMC."""

    properties = {"machine_address": "", "machine_username": "", "machine_password": ""}

    def __init__(self) -> None:
        super().__init__()
        self.password = OLD
        self.rejected = 0
        self.told = 0
        self.upon: Callable[[str], None] = lambda _what: None
        self.keeps: Callable[[str], str] = lambda password: password

    def log_in(self, node: Node) -> None:
        self._check("login")
        if node.driver_info.get("machine_password") != self.password:
            self.rejected += 1
            raise BmcError("rejected", transient=False, reason=Reason.BMC_CREDENTIALS)
        self.upon("login")

    def set_password(self, node: Node, password: str) -> None:
        self.log_in(node)
        self.upon("asked")
        if error := self.fail("change"):
            raise error
        self.told += 1
        self.password = self.keeps(password)
        self.upon("changed")
        if error := self.fail("answer"):
            raise error
        if self.password != password:
            raise BmcError(f"{password} does not work", transient=False, reason=Reason.BMC_REFUSED)


@pytest.fixture
def service() -> Service:
    made = Service(settings())
    made.machine = GuardedMachine()
    made.worker = made.new_worker("m1")
    info = {"machine_address": "192.0.2.1", "machine_username": "root", "machine_password": OLD}

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(NODE, lock=True)
        node.driver_info = info
        tx.nodes.update(node)

    made.store.write(work)
    return made


def bmc_of(service: Service) -> GuardedMachine:
    assert isinstance(service.machine, GuardedMachine)
    return service.machine


def request(service: Service, password: str | None = NEW, **payload: Any) -> None:
    """Do what the API does."""

    def work(tx: Transaction) -> None:
        node = tx.nodes.get(NODE, lock=True)
        if password is not None:
            node.driver_info = node.driver_info | {PENDING: password}
            node = tx.nodes.update(node)
        transition.submit(tx, node, Event.SET_PASSWORD, process="api", payload=payload)

    service.store.write(work)


def resume(service: Service) -> None:
    request(service, None, probe=True)


def known(service: Service) -> bool:
    """Whether the BMC's password is stored, as the present one or the new one."""
    info = service.node.driver_info
    return bmc_of(service).password in (info["machine_password"], info.get(PENDING))


def state(service: Service) -> PasswordProgress:
    return bmc_password.change_of(service.node, queued=bool(service.pending))


def test_the_new_password_replaces_the_old_one_when_it_is_proven(service: Service) -> None:
    request(service)
    assert state(service) is PasswordProgress.CHANGING
    service.work()
    assert service.node.driver_info["machine_password"] == NEW
    assert PENDING not in service.node.driver_info
    assert (state(service), bmc_of(service).rejected, service.node.last_error) == (PasswordProgress.CHANGED, 0, None)
    assert not any(secret in entry.message for entry in service.journal for secret in (OLD, NEW))


def test_a_refusal_keeps_the_old_password_and_forgets_the_new_one(service: Service) -> None:
    refusal = BmcError(f"{NEW} is too weak", transient=False, reason=Reason.BMC_REFUSED)
    bmc_of(service).fail = lambda what: refusal if what == "change" else None
    request(service)
    service.work()
    assert service.node.driver_info["machine_password"] == OLD
    assert PENDING not in service.node.driver_info
    assert state(service) is PasswordProgress.UNCHANGED
    assert "is too weak" in str(service.node.last_error)
    assert NEW not in str(service.node.last_error)
    assert known(service)


def test_an_answer_that_is_lost_is_followed_by_a_login(service: Service) -> None:
    lost = iter([BmcError("timed out", transient=True)])
    bmc_of(service).fail = lambda what: next(lost, None) if what == "answer" else None
    request(service)
    service.work()
    assert (service.node.driver_info["machine_password"], state(service)) == (NEW, PasswordProgress.CHANGED)
    assert (bmc_of(service).told, bmc_of(service).rejected) == (1, 0)


def test_a_bmc_that_does_not_answer_any_more_leaves_both_passwords(service: Service) -> None:
    silent = BmcError("timed out", transient=True)
    bmc = bmc_of(service)
    bmc.fail = lambda what: silent if what == "answer" or bmc.told else None
    request(service)
    service.work()
    assert state(service) is PasswordProgress.UNCLEAR
    assert known(service)
    bmc.fail = lambda _what: None
    resume(service)
    service.work()
    assert (service.node.driver_info["machine_password"], state(service)) == (NEW, PasswordProgress.CHANGED)
    assert bmc.rejected == 0


def test_a_password_that_was_changed_by_hand_is_taken_over(service: Service) -> None:
    bmc_of(service).password = NEW
    request(service)
    service.work()
    assert (service.node.driver_info["machine_password"], bmc_of(service).told) == (NEW, 0)


def test_neither_password_is_unclear_and_costs_two_logins(service: Service) -> None:
    bmc = bmc_of(service)
    bmc.password = "another-Pass.1"
    request(service)
    service.work()
    info = service.node.driver_info
    assert (info["machine_password"], info[PENDING], state(service)) == (OLD, NEW, PasswordProgress.UNCLEAR)
    assert (bmc.rejected, bmc.told) == (2, 0)
    assert Reason.BMC_PASSWORD_UNCLEAR in str(service.node.last_error)


def test_what_the_bmc_makes_of_it_decides_not_what_it_says(service: Service) -> None:
    bmc = bmc_of(service)
    bmc.keeps = lambda password: password[:8]
    request(service)
    service.work()
    assert state(service) is PasswordProgress.UNCLEAR, "the driver could not restore it: nothing is forgotten"
    assert service.node.driver_info[PENDING] == NEW


def test_an_operators_change_meanwhile_is_merged(service: Service) -> None:
    def renamed(what: str) -> None:
        if what == "asked":
            service.store.write(lambda tx: tx.nodes.update(_renamed(tx)))

    bmc_of(service).upon = renamed
    request(service)
    service.work()
    assert (service.node.name, service.node.driver_info["machine_password"]) == ("two", NEW)


def _renamed(tx: Transaction) -> Node:
    node = tx.nodes.get(NODE, lock=True)
    node.name = "two"
    return node


def test_a_request_whose_new_password_was_removed_does_nothing(service: Service) -> None:
    request(service)

    def remove(tx: Transaction) -> None:
        node = tx.nodes.get(NODE, lock=True)
        node.driver_info = {name: value for name, value in node.driver_info.items() if name != PENDING}
        tx.nodes.update(node)

    service.store.write(remove)
    service.work()
    assert (bmc_of(service).told, service.node.driver_info["machine_password"]) == (0, OLD)


@pytest.mark.parametrize("found", ["two\nlines-of-it", "short", "with a space"])
def test_what_a_reference_leads_to_is_checked_before_the_bmc_is_told(service: Service, found: str) -> None:
    request(service, found)
    service.work()
    assert (bmc_of(service).told, bmc_of(service).rejected) == (0, 0)
    assert Reason.DRIVER_INFO_INVALID in str(service.node.last_error)
    assert found not in str(service.node.last_error)


def test_it_does_not_run_during_an_inspection(service: Service) -> None:
    request(service)
    service.boot()
    assert service.node.state is State.WAITING
    assert bmc_of(service).told == 0
    assert known(service)
    assert service.node.driver_info[PENDING] == NEW


# What can be the last thing that happens to a worker.
POINTS = ("login", "asked", "changed", "claimed", "intended", "concluded")


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("deaths", [1, 2])
@pytest.mark.parametrize("ignored", [False, True], ids=["taken", "not taken"])
def test_a_worker_killed_at_any_point_leaves_no_password_that_nobody_knows(
    service: Service, monkeypatch: pytest.MonkeyPatch, point: str, deaths: int, ignored: bool
) -> None:
    bmc, left = bmc_of(service), itertools.count()
    if ignored:
        bmc.keeps = lambda _password: OLD

    def die(what: str) -> None:
        if what == point and next(left) < deaths:
            raise Killed

    bmc.upon = die

    def dying(what: str, call: Callable[..., Any], *, after: bool) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            if not after:
                die(what)
            found = call(*arguments, **options)
            if after:
                die(what)
            return found

        return run

    monkeypatch.setattr(Worker, "run", dying("claimed", Worker.run, after=False))
    monkeypatch.setattr(Attempt, "intend", dying("intended", Attempt.intend, after=True))
    monkeypatch.setattr(Worker, "commit", dying("concluded", Worker.commit, after=False))
    request(service)
    for number in itertools.count(1):
        try:
            service.work()
            break
        except Killed:
            assert known(service)
            service.kill(f"m{number}")
            service.worker = service.new_worker(f"m{number + 1}")
    assert known(service)
    if ignored:
        assert (service.node.driver_info["machine_password"], state(service)) == (OLD, PasswordProgress.UNCHANGED)
    else:
        assert (service.node.driver_info["machine_password"], state(service)) == (NEW, PasswordProgress.CHANGED)
    assert bmc.rejected <= 2, "BMCs lock accounts"


class FailingStore:
    """A store whose write number ``number`` from now on fails: before it is committed, or instead of its answer."""

    def __init__(self, store: Store, number: int, *, committed: bool) -> None:
        self._store, self._left, self._committed = store, number, committed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def write(self, work: Callable[[Transaction], Any], *, durable: bool = True) -> Any:
        self._left -= 1
        if self._left == 0 and not self._committed:
            raise StoreUnavailableError("the database has failed over")
        result = self._store.write(work, durable=durable)
        if self._left == 0:
            raise OutcomeUnknownError("the answer got lost")
        return result


@pytest.mark.parametrize("number", [1, 2], ids=["the intent", "the result"])
@pytest.mark.parametrize("committed", [False, True], ids=["not committed", "answer lost"])
@pytest.mark.parametrize("ignored", [False, True], ids=["taken", "not taken"])
def test_a_database_that_fails_over_at_any_write_loses_no_password(
    service: Service, number: int, committed: bool, ignored: bool
) -> None:
    if ignored:
        bmc_of(service).keeps = lambda _password: OLD
    request(service)
    store: Any = service.store
    failing: Any = FailingStore(store, number + 1, committed=committed)  # the first one is a heartbeat
    service.store = failing
    service.worker = service.new_worker("m2")
    while service.pending:
        service.clock.now += 1.0
        service.worker.step()
        assert known(service)
    assert failing._left <= 0
    service.store = store
    expected = (OLD, PasswordProgress.UNCHANGED) if ignored else (NEW, PasswordProgress.CHANGED)
    assert (service.node.driver_info["machine_password"], state(service)) == expected
    assert bmc_of(service).rejected <= 1
