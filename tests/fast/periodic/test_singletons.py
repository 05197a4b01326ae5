"""Periodic singletons: election, succession, and what each task does when it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import RegistrySettings
from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import IronicUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.core.model import DEFAULT, ClockStep, Entry, Inspection, Node, Port
from ferroscope.core.states import Event, State
from ferroscope.leadership import Election, Leadership, LeaseRenewer, StepLeadership
from ferroscope.periodic.orphans import Orphans
from ferroscope.periodic.retention import Retention
from ferroscope.periodic.singleton import Singleton
from tests.fast.worker.conftest import ManualClock, ManualStop
from tests.support import examples
from tests.support.stores import open_store


class Task:
    """Counts its runs; ``during`` happens in the middle of each."""

    name = "periodic/test"
    period = 30.0

    def __init__(self) -> None:
        self.runs = 0
        self.during = lambda: None

    def step(self, leadership: StepLeadership) -> str:
        self.leadership = leadership
        self.runs += 1
        self.during()
        return f"ran {self.runs} times"


class Members:
    """One store, one clock, any number of candidates for one task."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.stop = ManualStop(self.clock)
        self.store = open_store(clock=self.clock)
        self.leaderships: list[Leadership] = []

    def singleton(self, holder: str, task: Task) -> Singleton:
        profile = msgspec.structs.replace(DEFAULT, poll=0.0)
        election = Election(task.name, holder, store=self.store, clock=self.clock, profile=profile)
        return Singleton(
            lambda: task,
            election,
            keep=lambda leadership, _reset, _leave: self.leaderships.append(leadership),
            profile=profile,
            bus=LocalBus(),
            clock=self.clock,
            stop=self.stop,
            new_flag=lambda: ManualStop(self.clock),
        )


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

    def tracked(self) -> frozenset[str]:
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


class Source:
    """A registry that says what the test tells it to."""

    def __init__(self, *answers: Iterable[str] | None) -> None:
        self._answers = list(answers)

    def tracked(self) -> frozenset[str]:
        answer = self._answers.pop(0)
        if answer is None:
            raise IronicUnavailableError("it is away")
        return frozenset(answer)


def enrolled(members: Members, *uuids: str) -> None:
    for uuid in uuids:
        members.store.write(lambda tx, uuid=uuid: tx.nodes.add(Node(uuid=uuid, driver="fake")))  # type: ignore[misc]


def deletions(members: Members, uuid: str) -> int:
    requests = members.store.read(lambda tx: tx.requests.pending(uuid))
    return sum(request.event is Event.DELETE for request in requests)


def sync_of(members: Members, *answers: Iterable[str] | None, **settings: float) -> Orphans:
    return Orphans(members.store, Source(*answers), settings=RegistrySettings(**settings), process="p")


def orphans(members: Members) -> set[str]:
    return {uuid for uuid, since in members.store.read(lambda tx: tx.nodes.orphans()).items() if since is not None}


FLEET = [f"11111111-1111-4111-8111-{number:012d}" for number in range(10)]
DAY = 86400.0


def test_a_node_that_is_missing_is_an_orphan_for_days_before_it_gets_one_delete_request() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[FLEET[1:]] * 4)
    sync.step(examples.UNLED)
    assert orphans(members) == {FLEET[0]}
    members.clock.now += 2.9 * DAY
    sync.step(examples.UNLED)
    assert deletions(members, FLEET[0]) == 0
    members.clock.now += 0.2 * DAY
    sync.step(examples.UNLED)
    sync.step(examples.UNLED)
    assert [deletions(members, uuid) for uuid in FLEET] == [1] + [0] * 9
    assert sync.problem is None


def test_an_orphan_that_is_tracked_again_is_none_any_more_and_its_timeline_says_so() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, FLEET[1:], FLEET, FLEET[1:])
    sync.step(examples.UNLED)
    members.clock.now += 4 * DAY
    sync.step(examples.UNLED)
    assert orphans(members) == set()
    sync.step(examples.UNLED)
    assert deletions(members, FLEET[0]) == 0
    steps = members.store.read(lambda tx: tx.journal.list(Query(filters={"node": FLEET[0]}, sort_key="id")))
    assert [step.reason for step in steps] == ["not-tracked", None, "not-tracked"]


@pytest.mark.parametrize(
    "fields",
    [{"attributes": {"protected": True}}, {"instance_uuid": examples.uuid()}, {"state": State.WAITING}],
    ids=["protected", "in use", "under inspection"],
)
def test_an_orphan_that_somebody_needs_is_never_deleted(fields: dict[str, Any]) -> None:
    members = Members()
    enrolled(members, *FLEET[1:])
    members.store.write(lambda tx: tx.nodes.add(Node(uuid=FLEET[0], driver="fake", **fields)))
    sync = sync_of(members, *[FLEET[1:]] * 3)
    for _ in range(3):
        sync.step(examples.UNLED)
        members.clock.now += 4 * DAY
    assert orphans(members) == {FLEET[0]}
    assert deletions(members, FLEET[0]) == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ([], "registry-empty"),
        (FLEET[2:], "registry-short"),
        (["somebody else's"], "registry-short"),
        (None, "registry-unavailable"),
    ],
)
def test_a_list_that_lacks_too_much_changes_nothing_and_is_told(answer: list[str] | None, code: str) -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[answer] * 3, FLEET)
    for _ in range(3):
        sync.step(examples.UNLED)
        members.clock.now += 4 * DAY
    assert sync.problem is not None
    assert sync.problem.code == code
    assert orphans(members) == set()
    assert sum(deletions(members, uuid) for uuid in FLEET) == 0
    sync.step(examples.UNLED)
    assert sync.problem is None


def test_how_much_may_be_missing_and_for_how_long_is_for_the_operator_to_say() -> None:
    members = Members()
    enrolled(members, *FLEET)
    sync = sync_of(members, *[FLEET[5:]] * 2, max_missing=0.5, delete_after=0.0)
    sync.step(examples.UNLED)
    assert orphans(members) == set(FLEET[:5])
    members.clock.now += 400 * DAY
    sync.step(examples.UNLED)
    assert sum(deletions(members, uuid) for uuid in FLEET) == 0


def test_without_a_registry_the_task_is_disabled() -> None:
    assert Orphans(Members().store, None, settings=RegistrySettings(), process="p").period == 0.0


def test_retention_goes_on_until_nothing_old_is_left() -> None:
    members = Members()
    enrolled(members, "n1")

    def fill(tx) -> None:  # type: ignore[no-untyped-def]
        for number in range(450):
            tx.inspections.add(
                Inspection(uuid=f"i{number}", node="n1", state=State.ERROR, started_at=1.0, finished_at=2.0)
            )

    members.store.write(fill)
    members.clock.now = 100_000.0
    assert "removed 450" in Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock).step(
        examples.UNLED
    )
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


def test_a_run_of_retention_is_bounded_and_the_next_one_goes_on() -> None:
    members = Members()
    enrolled(members, "n1")
    old = [
        Inspection(uuid=f"i{number}", node="n1", state=State.ERROR, started_at=1.0, finished_at=2.0)
        for number in range(4_000)
    ]
    members.store.write(lambda tx: [tx.inspections.add(one) for one in old])
    members.clock.now = 100_000.0

    def a_second_passes() -> None:
        members.clock.now += 1.0

    leadership: Any = SimpleNamespace(fence=lambda _tx: None, keep_alive=a_second_passes)
    task = Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock)
    task.step(leadership)
    left = len(members.store.read(lambda tx: tx.inspections.list(Query())))
    assert 0 < left < 4_000
    for _ in range(5):
        task.step(leadership)
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


def test_nothing_is_too_old_because_the_clock_was_set() -> None:
    members = Members()
    enrolled(members, "n1")
    members.clock.now = 10 * DAY
    now = members.clock.now
    ended = Inspection(uuid="i", node="n1", state=State.ERROR, started_at=now - 2, finished_at=now - 1)
    members.store.write(lambda tx: tx.inspections.add(ended))
    members.clock.now += 100 * DAY
    task = Retention(members.store, threshold=DAY, period=30.0, clock=members.clock)
    members.store.write(lambda tx: tx.clock_steps.record(ClockStep(id=1, seconds=100 * DAY), 1.0))
    task.step(examples.UNLED)
    assert len(members.store.read(lambda tx: tx.inspections.list(Query()))) == 1
    members.clock.now += 2 * DAY
    task.step(examples.UNLED)
    assert members.store.read(lambda tx: tx.inspections.list(Query())) == []


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


def test_retention_forgets_old_changes_of_macs_even_where_inspections_are_kept_for_ever() -> None:
    members = Members()
    node = Node(uuid="11111111-1111-4111-8111-111111111111", driver="fake")
    members.store.write(lambda tx: tx.nodes.add(node))
    members.store.write(lambda tx: tx.ports.add([Port(uuid="p1", node=node.uuid, address="52:54:00:00:00:01")]))
    task = Retention(members.store, threshold=0.0, period=30.0, clock=members.clock)
    assert "0 old MAC changes" in task.step(examples.UNLED)
    members.clock.now += 3601.0
    assert "1 old MAC changes" in task.step(examples.UNLED)
    assert members.store.read(lambda tx: tx.macs.newest()) == 0


def test_retention_keeps_access_tokens_for_90_days_after_their_end() -> None:
    members = Members()
    members.clock.now = 1_000 * DAY
    ends = {"expired": {"expires_at": members.clock.now}, "revoked": {"revoked_at": members.clock.now}, "active": {}}
    for name, fields in ends.items():
        token = examples.access_token(name=name, **fields)
        members.store.write(lambda tx, token=token: tx.access_tokens.add(token))  # type: ignore[misc]

    def left() -> set[str]:
        task = Retention(members.store, threshold=0.0, period=30.0, clock=members.clock)
        task.step(examples.UNLED)
        return {token.name for token in members.store.read(lambda tx: tx.access_tokens.list())}

    members.clock.now += 90 * DAY - 1.0
    assert left() == {"expired", "revoked", "active"}
    members.clock.now += 2.0
    assert left() == {"active"}


def test_retention_looks_through_the_journal_once_an_hour() -> None:
    members = Members()
    node = Node(uuid="11111111-1111-4111-8111-111111111111", driver="fake")
    members.store.write(lambda tx: tx.nodes.add(node))
    members.clock.now = 200_000.0
    task = Retention(members.store, threshold=86_400.0, period=30.0, clock=members.clock)

    def left() -> int:
        task.step(examples.UNLED)
        return len(members.store.read(lambda tx: tx.journal.list(Query(sort_key="id"))))

    def note() -> None:
        old = Entry(node=node.uuid, inspection=None, step="power", message="on", process="p", at=1.0)
        members.store.write(lambda tx: tx.journal.append([old] * 300))

    note()
    assert left() == 0
    note()
    assert left() == 300
    members.clock.now += 3601.0
    assert left() == 0
