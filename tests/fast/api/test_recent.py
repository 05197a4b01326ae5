"""What one caller has found out is shared by the others: once at a time, and for longer where it takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from ferroscope.api.http.recent import TtlCache
from tests.support.manual_clock import ManualClock
from tests.support.processes import until


class Finding:
    """Takes ``seconds``, in which this process may do nothing, and says how often it was done."""

    def __init__(self, clock: ManualClock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.times = 0

    def __call__(self) -> int:
        self.clock.now += self.seconds
        self.times += 1
        return self.times


def test_what_takes_long_in_the_database_is_kept_for_longer_and_never_for_long() -> None:
    clock = ManualClock()
    recent = TtlCache(clock)
    quick, slow, slowest = (Finding(clock, seconds) for seconds in (0.0, 0.02, 5.0))
    findings = {"quick": quick, "slow": slow, "slowest": slowest}
    for name, find in findings.items():
        clock.now = 1000.0
        while clock.now < 1060.0:
            assert recent.get(name, 1.0, find) == find.times
            clock.now += 0.5
    assert quick.times == 60
    assert 14 <= slow.times <= 16
    assert slowest.times == 6


def test_what_takes_very_long_takes_a_small_share_of_the_time_where_it_may_be_old() -> None:
    clock = ManualClock()
    recent, find = TtlCache(clock), Finding(clock, 2.0)
    while clock.now < 1000.0 + 3600.0:
        assert recent.get("slow", 1.0, find, max_seconds=600.0) == find.times
        clock.now += 1.0
    assert find.times * find.seconds < 0.01 * 3600
    assert find.times > 2


def test_what_several_want_at_once_is_found_out_once() -> None:
    clock = ManualClock()
    recent, found, goes_on = TtlCache(clock), [], threading.Event()
    begun: list[int] = []

    def find() -> int:
        begun.append(len(begun))
        goes_on.wait()
        return len(begun)

    def look() -> None:
        found.append(recent.get("fleet", 2.0, find))

    first = [threading.Thread(target=look) for _ in range(5)]
    for one in first:
        one.start()
    assert until(lambda: bool(begun))
    goes_on.set()
    for one in first:
        one.join()
    assert (found, len(begun)) == ([1] * 5, 1)  # nothing was known: they have waited

    clock.now += 3.0
    goes_on.clear()
    another = threading.Thread(target=look)
    another.start()
    assert until(lambda: len(begun) == 2)
    look()  # sees what was known before, and does not wait
    goes_on.set()
    another.join()
    assert (found[5:], len(begun)) == ([1, 2], 2)

    clock.now += 3600.0
    look()
    assert (found[7:], len(begun)) == ([3], 3)  # what is that old is not shown


def test_what_fails_is_not_kept_and_holds_nobody_up() -> None:
    recent = TtlCache(ManualClock())

    def fail() -> int:
        raise LookupError

    for _ in range(2):
        with pytest.raises(LookupError):
            recent.get("fleet", 2.0, fail)
    assert recent.get("fleet", 2.0, lambda: 7) == 7


def test_few_things_are_kept_and_those_whose_time_is_over_give_way() -> None:
    clock = ManualClock()
    recent = TtlCache(clock)
    made: list[int] = []

    def note(number: int) -> Callable[[], int]:
        def find() -> int:
            made.append(number)
            return number

        return find

    for number in range(200):
        assert recent.get(number, 2.0, note(number)) == number
    for number in (0, 199, 199):
        assert recent.get(number, 2.0, note(number)) == number
    assert made[200:] == [199, 199]
    clock.now += 3.0
    for number in (199, 199):
        assert recent.get(number, 2.0, note(number)) == number
    assert made[202:] == [199]
