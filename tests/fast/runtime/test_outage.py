"""A process that cannot reach the database stops itself when its retries are spent, and not before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.config.options import WorkerSettings
from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.runtime.member import Membership
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.database_fault import DatabaseFault
from tests.support import examples
from tests.support.manual_clock import ManualClock
from tests.support.rows import each
from tests.support.stores import open_store


class Store:
    """Answers, or not, as it is told; what it is told ends with the test."""

    def __init__(self, answers: Iterator[bool]) -> None:
        self._answers = answers

    def write(self, _work: object, *, durable: bool = True) -> tuple[float, float]:
        if not next(self._answers):
            raise StoreUnavailableError("the database is away")
        return 0.0, 1000.0  # how far our clock is ahead, and what the database's says

    read = write


class Flag:
    """Set after so many waits, none of which takes any time."""

    def __init__(self, waits: int) -> None:
        self.left = waits

    def is_set(self) -> bool:
        return self.left <= 0

    def set(self) -> None:
        self.left = 0

    def wait(self, _timeout: float | None = None) -> bool:
        self.left -= 1
        return self.is_set()


def heart(answers: list[bool], *, retries: int) -> tuple[Membership, Flag]:
    """Let a heart beat until its answers, or its flag, have ended."""
    flag = Flag(len(answers) + 1)
    store: Any = Store(iter(answers))
    member = Membership(
        store, WorkerSettings(), role="worker", stop=flag, clock=SystemClock(), ident="me", retries=retries, left=flag
    )
    member._run()
    return member, flag


def test_it_stops_when_as_many_heartbeats_in_a_row_were_missed() -> None:
    member, flag = heart([True, False, False, False, True, True], retries=3)
    assert member.cut_off
    assert flag.is_set()


@each(("answers", "retries"), [([False, False, True, False, False, True], 3), ([False] * 50, 0)])
def test_it_goes_on_after_fewer_or_where_it_is_told_to(answers: list[bool], retries: int) -> None:
    member, _ = heart(answers, retries=retries)
    assert not member.cut_off


def test_a_heartbeat_that_was_missed_is_known_at_once_and_patience_is_for_whoever_wants_it() -> None:
    clock = ManualClock()
    settings = WorkerSettings(member_ttl=6.0)
    store: Any = Store(iter([True, False, True]))
    member = Membership(store, settings, role="api", stop=Flag(10), clock=clock, ident="me")
    member._beat()
    assert (member.read_write_failure(at_once=True), member.read_write_failure()) == (None, None)
    full = StoreUnavailableError("disk full", DatabaseFault.FULL)
    member._miss(full)
    assert (member.read_write_failure(at_once=True), member.read_write_failure()) == (full.failure, None)
    clock.now += 12.0
    assert member.read_write_failure() == full.failure


def test_a_heartbeat_that_is_not_answered_is_known_after_the_time_it_is_valid() -> None:
    clock = ManualClock()
    member = Membership(
        open_store(clock=clock), WorkerSettings(member_ttl=6.0), role="api", stop=Flag(10), clock=clock, ident="me"
    )
    member._beat()
    clock.now += 6.0
    failure = member.read_write_failure(at_once=True)
    assert failure is not None
    assert (failure.fault, member.read_write_failure()) == (DatabaseFault.UNAVAILABLE, None)


def test_members_that_died_long_ago_are_forgotten_though_nobody_is_started() -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    for ident in ("dead", "other"):
        store.write(lambda tx, ident=ident: tx.members.beat(examples.member(ident), 6.0))  # type: ignore[misc]

    class Passing(Flag):
        def wait(self, timeout: float | None = None) -> bool:
            clock.now += timeout or 0.0
            return super().wait(timeout)

    flag = Passing(3700)
    settings = WorkerSettings()
    Membership(store, settings, role="worker", stop=flag, clock=clock, ident="me", left=flag)._run()
    assert [member.id for member in store.read(lambda tx: tx.members.list())] == ["me"]


def test_after_a_gap_in_the_heartbeats_only_what_is_confirmed_anew_is_sure() -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    settings = WorkerSettings(member_ttl=6.0)
    member = Membership(store, settings, role="worker", stop=Flag(10), clock=clock, ident="me")
    confirmed_at = clock.now
    assert member.claim_valid_for(confirmed_at) == 0.0  # nobody counts on us yet
    member._beat()
    assert member.claim_valid_for(confirmed_at) == 4.5
    clock.now += 4.0
    assert member.claim_valid_for(confirmed_at) == 0.5
    member._beat()
    assert member.claim_valid_for(confirmed_at) == 4.5
    clock.now += 4.6
    assert member.claim_valid_for(clock.now) == 0.0
    member._beat()  # it counts as alive again, and others may have taken what it held
    assert member.claim_valid_for(confirmed_at) == 0.0
    assert member.claim_valid_for(clock.now) == 4.5


def test_a_heartbeat_that_was_answered_late_counts_from_when_it_was_sent() -> None:
    clock = ManualClock()
    store = open_store(clock=clock)
    write = store.write

    def late(work: Any, *, durable: bool = True) -> Any:
        answer = write(work, durable=durable)
        clock.now += 4.0
        return answer

    member = Membership(store, WorkerSettings(), role="worker", stop=Flag(10), clock=clock, ident="me")
    store.write = late  # type: ignore[method-assign]
    member._beat()
    assert member.claim_valid_for(clock.now) == 0.5
