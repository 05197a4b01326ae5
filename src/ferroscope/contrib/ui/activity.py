"""The chart of the fleet page: inspections that finished and failed in the last week, as bars and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ferroscope.contracts.store import Ended
from ferroscope.db.transaction import Transaction

# Seconds of a bar, and bars of the chart.
WIDTH: Final = 6 * 3600
BARS: Final = 28
# The drawing: percent of the width for a bar with its gap, the share of it for the bar; pixels of the height of the
# highest bar, below for the days, and above. So its text is as large on a telephone as on a wide screen.
_STEP: Final = 100 / BARS
_BAR: Final = 0.76
_HEIGHT: Final = 130
_BELOW: Final = 20
_ABOVE: Final = 10
_TICKS: Final = 4
# Bars of a day.
_DAY: Final = round(86400 / WIDTH)


def read(tx: Transaction) -> dict[str, Any] | None:
    """Return the chart; None if no inspection ended in the last week."""
    first = (tx.now // WIDTH + 1 - BARS) * WIDTH
    ended = tx.statistics.ended(first, WIDTH, BARS)
    return draw(first, ended) if any(one.finished or one.failed for one in ended) else None


def draw(first: float, ended: Sequence[Ended]) -> dict[str, Any]:
    """Return the geometry of the bars, from left to right; failed inspections are above finished ones."""
    ticks = axis(max(one.finished + one.failed for one in ended))
    most = ticks[-1]
    bars = []
    for number, one in enumerate(ended):
        finished, failed = _share(one.finished, most), _share(one.failed, most)
        moment = datetime.fromtimestamp(first + number * WIDTH, UTC)
        room = len(ended) - number
        bars.append(
            {
                "x": round(number * _STEP, 2),
                "finished": one.finished,
                "failed": one.failed,
                "finished_y": round(_HEIGHT - finished, 1),
                "finished_height": finished,
                "failed_y": round(_HEIGHT - finished - failed, 1),
                "failed_height": failed,
                "time": f"{moment:%Y-%m-%d %H:%M}",
                # A day is written to the right of its beginning; on a phone, every other one, and none in the last day.
                "day": f"{moment:%d %b}" if moment.hour == 0 and room > 1 else "",
                "spare": (room - 1) // _DAY % 2 == 0,
            }
        )
    return {
        "bars": bars,
        "bar": round(_STEP * _BAR, 2),
        "ticks": [{"number": one, "y": round(_HEIGHT - one / most * (_HEIGHT - _ABOVE), 1)} for one in ticks],
        "height": _HEIGHT,
        "whole": _HEIGHT + _BELOW,
        "finished": sum(one.finished for one in ended),
        "failed": sum(one.failed for one in ended),
    }


def _share(number: int, most: int) -> float:
    """Return the height for a number; at least one unit, so that a single failure is visible."""
    return round(max(1.0, number / most * (_HEIGHT - _ABOVE)), 1) if number else 0.0


def axis(most: int) -> list[int]:
    """Return round numbers from 0 to at least ``most``, which is positive, at equal distances."""
    step, power = 1, 1
    while step * _TICKS < most:
        power, step = next((p, f * p) for p in (power, power * 10) for f in (1, 2, 5) if f * p > step)
    return [number * step for number in range(-(-most // step) + 1)]
