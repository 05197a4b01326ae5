"""Who is lost according to a coordination service, when it is believed, and what candidates and leaders make of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ferroscope.bus.local import LocalBus
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Channel, CoordinationUnavailableError
from ferroscope.contrib.openstack.sync import IronicCopies
from ferroscope.core.model import DEFAULT
from ferroscope.leadership import Election, LeaseRenewer
from ferroscope.liveness.watch import PartyWatch
from ferroscope.periodic.archiving import Archiving
from ferroscope.periodic.notifications import Notifications
from ferroscope.periodic.orphans import Orphans
from ferroscope.periodic.retention import Retention
from ferroscope.periodic.timeouts import Timeouts
from tests.support.manual_clock import ManualClock, ManualStop
from tests.support.processes import PATIENCE
from tests.support.rows import each
from tests.support.stores import open_store

SESSION = 3.0
DOWN = CoordinationUnavailableError("connection refused")


class Service:
    """Answers as it is told to, one answer after the other; then the process stops."""

    def __init__(self, clock: ManualClock, stop: threading.Event, answers: list[object]) -> None:
        self.clock = clock
        self.stop = stop
        self.answers = answers
        self.between: Callable[[], None] = lambda: None
        self.joins = 0

    def join(self) -> None:
        self.joins += 1

    def alive(self) -> frozenset[str]:
        answer = self.answers.pop(0)
        if not self.answers:
            self.stop.set()
        if isinstance(answer, Exception):
            raise answer
        return frozenset(str(answer).split())

    def wait(self, timeout: float) -> None:
        self.between()
        self.clock.now += timeout

    def leave(self) -> None:
        self.joins = -1


class Watched:
    """A watch of the member ``me`` that has heard these answers."""

    def __init__(self, *answers: object) -> None:
        self.clock, self.stop, self.bus = ManualClock(), ManualStop(ManualClock()), LocalBus()
        self.service = Service(self.clock, self.stop, list(answers))  # type: ignore[arg-type]
        self.watch = PartyWatch(
            self.service, member="me", session=SESSION, bus=self.bus, clock=self.clock, stop=self.stop
        )
        self.resets = 0
        self.watch.resets.append(self.reset)

    def reset(self) -> None:
        self.resets += 1

    def heard(self) -> Watched:
        self.watch.run()
        return self


def test_a_member_is_lost_that_had_a_session_and_has_none_any_more() -> None:
    seen = Watched("me a b", "me b").heard()
    assert seen.watch.is_lost("a")
    assert not seen.watch.is_lost("b")
    assert not seen.watch.is_lost("never seen")
    assert seen.watch.member_count == 2
    assert seen.resets == 1
    assert seen.bus.wait(Channel.LEASES, 0, 0.0) == 1  # candidates are awake


def test_a_member_that_comes_back_is_not_lost() -> None:
    assert not Watched("me a", "me", "me a").heard().watch.is_lost("a")


@each("answers", [("me a", DOWN, "me"), ("me a", "", "me"), ("me a", "a", "me"), ("me",)])
def test_nobody_is_lost_after_an_outage_or_when_the_service_has_forgotten_us(answers: tuple[object, ...]) -> None:
    seen = Watched(*answers).heard()
    assert not seen.watch.is_lost("a")
    assert seen.watch.problem is None


def test_our_own_lost_session_is_renewed_and_makes_leaders_look() -> None:
    seen = Watched("me a", "a", "me a")
    joins: list[int] = []
    seen.service.between = lambda: joins.append(seen.service.joins)
    seen.heard()
    assert joins[-1] == 2
    assert seen.resets == 1


def test_an_outage_is_a_problem_until_the_service_is_back() -> None:
    seen = Watched("me a", DOWN).heard()
    assert seen.watch.problem is not None
    assert seen.watch.problem.code == "coordination-unavailable"
    assert seen.watch.member_count is None
    assert Watched("me a", DOWN, "me a").heard().watch.problem is None


def test_what_was_seen_a_session_ago_is_not_believed_as_after_a_pause_of_this_process() -> None:
    seen = Watched("me a", "me").heard()
    assert seen.watch.is_lost("a")
    seen.clock.now += SESSION
    assert not seen.watch.is_lost("a")


class Site:
    """One lease, its holder ``a``, and a candidate ``b`` that knows whom the service has lost."""

    def __init__(self, *lost: str) -> None:
        self.clock = ManualClock()
        self.store = open_store(clock=self.clock)
        holder = Election("backup", "a", store=self.store, clock=self.clock, profile=DEFAULT).campaign()
        assert holder is not None
        self.holder = holder
        self.candidate = Election(
            "backup", "b", store=self.store, clock=self.clock, profile=DEFAULT, is_lost=lost.__contains__
        )


def test_a_lost_holder_is_replaced_when_it_has_missed_a_renewal_and_its_writes_are_rejected() -> None:
    site = Site("a")
    site.clock.now += DEFAULT.renew
    assert site.candidate.campaign() is None  # it may just have lost its connection to the service
    site.clock.now += DEFAULT.renew
    won = site.candidate.campaign()
    assert won is not None
    assert won.claim.epoch == site.holder.claim.epoch + 1
    with pytest.raises(LeaseLostError):
        site.store.write(site.holder.fence)


def test_a_new_leader_knows_until_when_the_one_before_may_trust_its_lease() -> None:
    site = Site("a")
    site.clock.now += 2 * DEFAULT.renew
    won = site.candidate.campaign()
    assert won is not None
    assert won.alone_from == pytest.approx(site.holder.trusted_until + DEFAULT.margin)


@each("lost", [(), ("c",)])
def test_a_holder_that_is_not_lost_keeps_its_lease_until_it_expires(lost: tuple[str, ...]) -> None:
    site = Site(*lost)
    site.clock.now += DEFAULT.ttl - 0.1
    assert site.candidate.campaign() is None
    site.clock.now += 0.2
    assert site.candidate.campaign() is not None


def test_a_candidate_waits_no_longer_than_until_a_lost_holder_has_missed_its_renewal() -> None:
    site = Site("a")
    site.clock.now += 0.1
    assert site.candidate.campaign() is None
    assert site.candidate._patience(hears=True) < 2 * DEFAULT.renew


def test_a_leader_that_confirms_its_lease_learns_at_once_that_it_was_lost() -> None:
    site = Site("a")
    site.clock.now += 2 * DEFAULT.renew
    reset = threading.Event()
    waiting = threading.Event()

    class Pause(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waiting.set()
            return super().wait(PATIENCE)  # a renewal would be due then

    renewer = LeaseRenewer(DEFAULT, site.clock, leave=lambda: None, new_flag=Pause)
    site.holder.keep_alive()
    thread = threading.Thread(target=renewer.run, args=(site.holder, reset))
    thread.start()
    assert waiting.wait(PATIENCE)
    assert site.candidate.campaign() is not None
    site.holder.resign = lambda: None  # type: ignore[method-assign]
    site.holder._has_resigned = True  # the work has noticed; the renewer need not make it stop
    site.holder.confirm()
    assert reset.wait(PATIENCE)
    thread.join(PATIENCE)
    assert site.holder.over


def test_only_tasks_that_change_nothing_but_the_database_are_replaced_early() -> None:
    early = {task for task in (Archiving, Notifications, IronicCopies, Orphans, Retention, Timeouts)
             if getattr(task, "only_fenced", False)}  # fmt: skip
    assert early == {IronicCopies, Orphans, Retention, Timeouts}
