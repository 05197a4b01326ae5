"""The chart of the fleet page: inspections that finished and failed in the last week, as bars and as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from ferroscope.contracts.store import Ended
from ferroscope.db.transaction import Transaction

# Seconds of a bar, and bars of the chart.
WIDTH: Final = 6 * 3600
BARS: Final = 28
# Units of the drawing: a bar with its gap, the height of the highest bar, and the space for the days below.
_STEP: Final = 20
_GAP: Final = 4
_HEIGHT: Final = 60
_BELOW: Final = 18


def read(tx: Transaction) -> dict[str, Any] | None:
    """Return the chart; None if no inspection ended in the last week."""
    last = (tx.now // WIDTH + 1) * WIDTH
    edges = [last - (BARS - number) * WIDTH for number in range(BARS + 1)]
    ended = tx.statistics.ended(edges)
    return draw(edges, ended) if any(one.finished or one.failed for one in ended) else None


def draw(edges: list[float], ended: list[Ended] | Any) -> dict[str, Any]:
    """Return the geometry of the bars, from left to right; failed inspections are above finished ones."""
    most = max(one.finished + one.failed for one in ended)
    bars = []
    for number, (began, one) in enumerate(zip(edges, ended, strict=False)):
        finished, failed = _share(one.finished, most), _share(one.failed, most)
        moment = datetime.fromtimestamp(began, UTC)
        bars.append(
            {
                "x": number * _STEP,
                "finished": one.finished,
                "failed": one.failed,
                "finished_y": round(_HEIGHT - finished, 1),
                "finished_height": finished,
                "failed_y": round(_HEIGHT - finished - failed, 1),
                "failed_height": failed,
                "time": f"{moment:%Y-%m-%d %H:%M}",
                "day": f"{moment:%d %b}" if moment.hour == 0 else "",
            }
        )
    return {
        "bars": bars,
        "bar": _STEP - _GAP,
        "width": len(bars) * _STEP,
        "height": _HEIGHT,
        "whole": _HEIGHT + _BELOW,
        "most": most,
        "finished": sum(one.finished for one in ended),
        "failed": sum(one.failed for one in ended),
    }


def _share(number: int, most: int) -> float:
    """Return the height for a number; at least one unit, so that a single failure is visible."""
    return round(max(1.0, number / most * (_HEIGHT - 4)), 1) if number else 0.0
