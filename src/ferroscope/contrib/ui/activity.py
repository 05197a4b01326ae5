"""The chart of the fleet page: inspections that finished and failed in the last week, as bars and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ferroscope.contracts.store import Ended
from ferroscope.db import Transaction

# Seconds of a bar, and bars of the chart.
BAR_SECONDS: Final = 6 * 3600
BAR_COUNT: Final = 28
# The drawing: percent of the width for a bar with its gap, the share of it for the bar; pixels of the height of the
# highest bar, below for the days, and above. So its text is as large on a telephone as on a wide screen.
_BAR_PITCH_PERCENT: Final = 100 / BAR_COUNT
_BAR_WIDTH_SHARE: Final = 0.76
_PLOT_HEIGHT: Final = 130
_MARGIN_BELOW: Final = 20
_MARGIN_ABOVE: Final = 10
_MAX_TICKS: Final = 4
# Bars of a day.
_BARS_PER_DAY: Final = round(86400 / BAR_SECONDS)


def read(tx: Transaction) -> dict[str, Any] | None:
    """Return the chart; None if no inspection ended in the last week."""
    first = (tx.now // BAR_SECONDS + 1 - BAR_COUNT) * BAR_SECONDS
    ended = tx.statistics.ended(first, BAR_SECONDS, BAR_COUNT)
    return draw(first, ended) if any(period.finished or period.failed for period in ended) else None


def draw(first: float, ended: Sequence[Ended]) -> dict[str, Any]:
    """Return the geometry of the bars, from left to right; failed inspections are above finished ones."""
    ticks = axis(max(period.finished + period.failed for period in ended))
    most = ticks[-1]
    bars = []
    for number, period in enumerate(ended):
        finished, failed = _share(period.finished, most), _share(period.failed, most)
        moment = datetime.fromtimestamp(first + number * BAR_SECONDS, UTC)
        room = len(ended) - number
        bars.append(
            {
                "x": round(number * _BAR_PITCH_PERCENT, 2),
                "finished": period.finished,
                "failed": period.failed,
                "finished_y": round(_PLOT_HEIGHT - finished, 1),
                "finished_height": finished,
                "failed_y": round(_PLOT_HEIGHT - finished - failed, 1),
                "failed_height": failed,
                "time": f"{moment:%Y-%m-%d %H:%M}",
                # A day's label is to the right of its beginning; on a phone, every other day has one, and the last day
                # has none.
                "day": f"{moment:%d %b}" if moment.hour == 0 and room > 1 else "",
                "spare": (room - 1) // _BARS_PER_DAY % 2 == 0,
            }
        )
    return {
        "bars": bars,
        "bar": round(_BAR_PITCH_PERCENT * _BAR_WIDTH_SHARE, 2),
        "ticks": [
            {"number": tick, "y": round(_PLOT_HEIGHT - tick / most * (_PLOT_HEIGHT - _MARGIN_ABOVE), 1)}
            for tick in ticks
        ],
        "height": _PLOT_HEIGHT,
        "whole": _PLOT_HEIGHT + _MARGIN_BELOW,
        "finished": sum(period.finished for period in ended),
        "failed": sum(period.failed for period in ended),
    }


def _share(number: int, most: int) -> float:
    """Return the height for a number; at least one unit, so that a single failure is visible."""
    return round(max(1.0, number / most * (_PLOT_HEIGHT - _MARGIN_ABOVE)), 1) if number else 0.0


def axis(most: int) -> list[int]:
    """Return round numbers from 0 to at least ``most``, which is positive, at equal distances."""
    step, power = 1, 1
    while step * _MAX_TICKS < most:
        power, step = next((p, f * p) for p in (power, power * 10) for f in (1, 2, 5) if f * p > step)
    return [number * step for number in range(-(-most // step) + 1)]
