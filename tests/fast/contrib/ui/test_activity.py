"""The axes of the chart: round numbers, the last of which is above the highest bar, and days that have room."""

from __future__ import annotations

from ferroscope.contracts.store import Ended
from ferroscope.contrib.ui.activity import BAR_COUNT, axis, draw
from tests.support.rows import each


@each(
    ("most", "ticks"),
    [(1, [0, 1]), (4, [0, 1, 2, 3, 4]), (5, [0, 2, 4, 6]), (41, [0, 20, 40, 60]), (591, [0, 200, 400, 600])],
)
def test_the_axis_has_round_numbers(most: int, ticks: list[int]) -> None:
    assert axis(most) == ticks


def test_no_bar_is_higher_than_the_axis() -> None:
    for most in range(1, 3000):
        ticks = axis(most)
        assert ticks[-1] >= most
        assert 2 <= len(ticks) <= 6


@each("hour", [0, 6, 12, 18])
def test_a_day_is_written_where_there_is_room_for_it_whatever_the_time(hour: int) -> None:
    first = 1_769_731_200.0 + hour * 3600  # a midnight in UTC
    bars = draw(first, [Ended(1, 0)] * BAR_COUNT)["bars"]
    written = [BAR_COUNT - number for number, bar in enumerate(bars) if bar["day"]]
    assert len(written) >= 6
    assert min(written) > 1
    on_a_phone = [BAR_COUNT - number for number, bar in enumerate(bars) if bar["day"] and not bar["spare"]]
    assert len(on_a_phone) >= 3
    assert min(on_a_phone) > 4
