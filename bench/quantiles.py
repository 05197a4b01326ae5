"""Small statistics: quantiles and medians."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec


def at(ordered: Sequence[float], share: float) -> float:
    """Return the value at ``share`` of the sorted numbers; 0 where there are none."""
    return ordered[round((len(ordered) - 1) * share)] if ordered else 0.0


class Spread(msgspec.Struct, frozen=True):
    """The distribution of some durations, in milliseconds."""

    count: int = 0
    p50: float = 0.0
    p99: float = 0.0
    max: float = 0.0

    def __str__(self) -> str:
        return f"{self.p50:.1f} / {self.p99:.1f} / {self.max:.1f}"


def spread(seconds: Sequence[float]) -> Spread:
    """Return the distribution of ``seconds``."""
    ordered = sorted(value * 1000 for value in seconds)
    return Spread(len(ordered), at(ordered, 0.5), at(ordered, 0.99), at(ordered, 1.0))


def middle(values: Sequence[float]) -> float:
    """Return the median; 0 where there is nothing."""
    return median(values) if values else 0.0
