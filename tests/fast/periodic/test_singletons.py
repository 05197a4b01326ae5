"""Periodic singletons: election, succession, renewal, and the end of a step."""

from __future__ import annotations

import itertools
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import LeaseLostError, StoreUnavailableError
from ferroscope.contracts.store import StopFlag
from ferroscope.contracts.telemetry import Silent
from ferroscope.core.model import DEFAULT
from ferroscope.leadership import Election, Leadership, LeaseRenewer
from ferroscope.periodic.orphans import Orphans
from tests.fast.periodic.members import Members, Task, enrolled
from tests.support.manual_clock import ManualStop


def test_the_leader_runs_once_a_period_until_its_trust_ends() -> None:
    members, task = Members(), Task()
    one = members.singleton("a", task)
    one.campaign()
    assert task.runs == 1  # nobody renewed: it stopped before its lease did
    assert "periodic/test" in one.status


def test_a_leader_that_is_renewed_goes_on() -> None:
    members, task = Members(), Task()
    one = members.singleton("a", task)
    task.during = lambda: members.stop.set() if task.runs == 3 else None

    class Renewing(ManualStop):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait(timeout)
            assert members.leaderships[-1].renew()
            return self.is_set()

    one._new_flag = lambda: Renewing(members.clock)
    one.campaign()
    assert task.runs == 3
    (lease,) = members.store.read(lambda tx: tx.leases.list())
    assert lease.holder is None  # handed back at the end


def test_who_loses_a_campaign_watches_along() -> None:
    members, followed = Members(), []

    class Following(Task):
        def follow(self) -> None:
            followed.append(self.runs)

    members.singleton("b", Following()).campaign()
    assert followed == []
    members.singleton("c", Task())._election.campaign()
    members.singleton("b", Following()).campaign()
    assert followed == [0]


def test_a_leader_that_was_told_to_stop_stops_although_a_late_answer_renews_its_lease() -> None:
    members, task = Members(), Task()

    class Late(ManualStop):
        def wait(self, timeout: float | None = None) -> bool:
            members.leaderships[-1].renew()
            self.set()  # its trust had ended while the answer was on its way
            return True

    def end() -> None:
        if task.runs > 3:
            members.stop.set()  # it would run without a pause

    task.during = end
    one = members.singleton("a", task)
    one._new_flag = lambda: Late(members.clock)
    one.campaign()
    assert task.runs == 1
    (lease,) = members.store.read(lambda tx: tx.leases.list())
    assert lease.holder is None


def test_a_follower_does_not_run_the_task_and_says_whom_it_follows() -> None:
    members, task = Members(), Task()
    members.store.write(lambda tx: tx.leases.acquire(task.name, "b", 60.0))
    one = members.singleton("a", task)
    one.campaign()
    assert task.runs == 0
    assert "held by b" in one.status


def test_a_deposed_leader_stops_at_its_next_fenced_write() -> None:
    members, task = Members(), Task()

    def overthrow() -> None:
        members.clock.now += 10.0
        members.store.write(lambda tx: tx.leases.acquire(task.name, "b", 60.0))
        members.store.write(members.leaderships[-1].fence)

    task.during = overthrow
    one = members.singleton("a", task)
    one.campaign()
    assert "lost its lease" in one.status
    (lease,) = members.store.read(lambda tx: tx.leases.list())
    assert lease.holder == "b"


def test_a_step_is_a_sign_of_life_whenever_it_says_so_or_writes() -> None:
    members, task = Members(), Task()

    def work_for_long() -> None:
        for number in range(20):  # ten times as long as a lease lives
            members.clock.now += DEFAULT.ttl / 2
            if number % 2:
                task.leadership.keep_alive()
            else:
                members.store.write(task.leadership.fence)
            assert members.leaderships[-1].renew()
        members.stop.set()

    task.during = work_for_long
    one = members.singleton("a", task)
    one.campaign()
    assert "ran 1 times" in one.status


def test_a_step_that_was_silent_for_too_long_ends_at_its_next_sign_of_life_and_stands_again() -> None:
    members, task = Members(), Task()
    signs: list[str] = []

    def hang() -> None:
        if task.runs == 1:
            members.clock.now += DEFAULT.ttl * 2
            task.leadership.keep_alive()
        signs.append("went on")
        members.stop.set()

    task.during = hang
    one = members.singleton("a", task)
    one.campaign()
    assert signs == []
    assert "lost its lease" in one.status
    one.campaign()
    assert signs == ["went on"]


def test_a_step_ends_at_its_next_sign_of_life_when_the_process_stops() -> None:
    members, task = Members(), Task()

    def go_on_for_ever() -> None:
        members.stop.set()
        while True:
            task.leadership.keep_alive()

    task.during = go_on_for_ever
    members.singleton("a", task).campaign()
    assert task.runs == 1
    (lease,) = members.store.read(lambda tx: tx.leases.list())
    assert lease.holder is None


def test_a_step_that_the_database_does_not_let_finish_waits_its_period_and_is_a_problem_if_it_happens_again() -> None:
    members, task = Members(), Task()
    failures: list[str] = []
    problems: list[str] = []
    began: list[float] = []

    class Renewing(ManualStop):
        def wait(self, timeout: float | None = None) -> bool:
            super().wait(timeout)
            assert members.leaderships[-1].renew()
            return self.is_set()

    def fail() -> None:
        began.append(members.clock.now)
        problems.append(one.problem.code if one.problem else "")
        if task.runs == 5:
            members.stop.set()
        elif task.runs < 4:
            raise StoreUnavailableError("canceling statement due to statement timeout")

    class FailureMeter(Silent):
        def record_failed_step(self, lease: str) -> None:
            failures.append(lease)

    task.during = fail
    one = members.singleton("a", task)
    one._meter = FailureMeter()
    one._new_flag = lambda: Renewing(members.clock)
    one.campaign()
    assert problems == ["", "", "", "step-fails", ""]
    assert failures == [task.name] * 3
    assert {later - earlier for earlier, later in itertools.pairwise(began)} == {task.period}
    assert [leadership.claim.epoch for leadership in members.leaderships] == [1]


def test_a_period_of_zero_disables_the_task() -> None:
    members, task = Members(), Task()
    task.period = 0.0
    one = members.singleton("a", task)
    one.run()
    assert "disabled" in one.status


def leadership(members: Members) -> Leadership:
    election = Election("backup", "a", store=members.store, clock=members.clock, profile=DEFAULT)
    won = election.campaign()
    assert won is not None
    return won


def test_trust_ends_before_the_lease_and_counts_from_before_the_question() -> None:
    members = Members()
    won = leadership(members)
    assert won.trusted_until == members.clock.now + DEFAULT.ttl - DEFAULT.margin
    members.clock.now = won.trusted_until
    assert not won.is_valid()


def test_a_leader_that_makes_no_progress_is_not_renewed() -> None:
    members = Members()
    won = leadership(members)
    for _ in range(3):
        members.clock.now += 1.5
        assert won.renew()
    members.clock.now += DEFAULT.ttl
    assert not won.renew()
    won.keep_alive()
    assert won.renew()  # nobody took it meanwhile


def test_a_renewal_after_the_takeover_ends_the_leadership() -> None:
    members = Members()
    won = leadership(members)
    members.clock.now += DEFAULT.ttl
    won.keep_alive()
    members.store.write(lambda tx: tx.leases.acquire("backup", "b", 60.0))
    assert not won.renew()
    assert won.over
    with pytest.raises(LeaseLostError):
        members.store.write(won.fence)


def test_the_keeper_ends_a_process_whose_leader_did_not_stop_in_time() -> None:
    members = Members()
    won = leadership(members)
    left: list[str] = []
    reset: StopFlag = threading.Event()
    renewer = LeaseRenewer(
        DEFAULT, members.clock, leave=lambda: left.append("left"), new_flag=lambda: ManualStop(members.clock)
    )
    renewer.run(won, reset)  # no progress, no resignation: the work hangs
    assert reset.is_set()
    assert left == ["left"]


def test_the_keeper_lets_a_process_live_whose_leader_has_stopped() -> None:
    members = Members()
    won = leadership(members)
    won.resign()
    left: list[str] = []
    renewer = LeaseRenewer(DEFAULT, members.clock, leave=lambda: left.append("left"))
    renewer.run(won, threading.Event())
    assert left == []


class Slow(threading.Event):
    """A registry that answers only when ``set``."""

    def list_tracked_uuids(self) -> frozenset[str]:
        self.wait(30)
        return frozenset()


def test_a_registry_that_does_not_answer_costs_its_own_lease_nothing_but_time() -> None:
    """The step goes on showing signs of life, and its answer is one to the question of this step."""
    members, source = Members(), Slow()
    enrolled(members, "n1")
    sync = Orphans(members.store, source, settings=RegistrySettings(), process="p")
    signs: list[str] = []

    def sign() -> None:
        signs.append("alive")
        if len(signs) == 3:
            raise LeaseLostError("deposed")
        if len(signs) == 5:
            source.set()

    leadership: Any = SimpleNamespace(fence=lambda _tx: None, keep_alive=sign)
    with pytest.raises(LeaseLostError):
        sync.step(leadership)
    sync.step(leadership)
    assert len(signs) >= 5


def test_a_run_is_left_out_while_there_is_a_reason_not_to() -> None:
    members, task = Members(), Task()
    reasons = iter(["the clock was set", ""])
    one = members.singleton("a", task)
    one._not_now = lambda: next(reasons, "")
    one.campaign()
    assert task.runs == 0
    assert "the clock was set" in one.status
    one._not_now = lambda: ""
    members.clock.now += 2 * DEFAULT.ttl
    one.campaign()
    assert task.runs == 1
