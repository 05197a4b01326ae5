"""A result that takes long to read is not read each time."""

from __future__ import annotations

from ferroscope.api.http.remembered import Remembered


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Reading:
    """Takes ``seconds``, and says how often it was done."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.times = 0

    def __call__(self) -> int:
        self.clock.now += self.seconds
        self.times += 1
        return self.times


def test_what_is_read_quickly_is_read_each_time() -> None:
    clock = Clock()
    reading, remembered = Reading(clock, 0.01), Remembered[int]()
    assert [remembered.get(reading, clock) for _ in range(3)] == [1, 2, 3]


def test_what_is_read_slowly_is_read_for_a_small_share_of_the_time() -> None:
    clock = Clock()
    reading, remembered = Reading(clock, 2.0), Remembered[int]()
    while clock.now < 1000.0 + 3600:
        assert remembered.get(reading, clock) == reading.times
        clock.now += 1.0
    assert reading.times * reading.seconds < 0.02 * 3600
    assert reading.times > 2


def test_what_is_slow_for_those_who_look_every_few_seconds_is_read_a_few_times_a_minute() -> None:
    clock = Clock()
    reading, remembered = Reading(clock, 0.04), Remembered[int]()
    while clock.now < 1000.0 + 60:
        assert remembered.get(reading, clock) == reading.times
        clock.now += 2.5
    assert reading.times == 3
