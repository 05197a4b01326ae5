"""Small statistics: quantiles, rates over slices, nothing that hides a number."""

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


def slice_rates(began: float, ends: Sequence[float], slices: int = 10) -> list[float]:
    """Return events per second in each of ``slices`` runs of as many events; ``ends`` are their times."""
    ordered = sorted(ends)
    size = max(1, len(ordered) // slices)
    rates = []
    for first in range(0, len(ordered) - size + 1, size):
        before = ordered[first - 1] if first else began
        rates.append(size / max(ordered[first + size - 1] - before, 1e-9))
    return rates


def middle(values: Sequence[float]) -> float:
    """Return the median; 0 where there is nothing."""
    return median(values) if values else 0.0
