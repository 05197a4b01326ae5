"""The axes of the chart: round numbers, the last of which is above the highest bar, and days that have room."""

from __future__ import annotations

from ferroscope.contrib.ui.activity import axis
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
