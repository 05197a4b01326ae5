"""Whether memory stays flat: the criterion, and what is printed for a person to judge it by.

After a warm-up (the first tenth of the callbacks, and no less than ``_WARM`` where the run is long enough)
a line is fitted to what each process holds. It may rise by so many MiB per 100,000 callbacks. Over a part that
is short, a cache that still fills looks like a leak: there it may rise by ``_FILLING`` MiB in all, which is why
only a long run proves anything.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

PER: Final = 100_000
_WARM: Final = 100_000
_FILLING: Final = 4.0
_LOOKS: Final = 12  # fewer samples than this show nothing


class Sample(msgspec.Struct, frozen=True):
    """MiB that a process held when so many callbacks had been sent."""

    sent: int
    rss: float


class Trend(msgspec.Struct, frozen=True):
    """The line fitted to a process's samples from ``warm`` to ``end`` callbacks; ``rise`` in MiB per 100,000."""

    name: str
    warm: int
    end: int
    first: float
    last: float
    rise: float
    allowed: float

    @property
    def grown(self) -> float:
        """MiB by which the line rises over the whole part."""
        return self.rise * (self.end - self.warm) / PER

    def told(self) -> str:
        return (
            f"{self.name}: {self.first:.1f} MiB when warm ({self.warm} callbacks), {self.last:.1f} MiB in the end; "
            f"fitted: {self.rise:+.2f} MiB per {PER}, {self.grown:+.1f} MiB in all (allowed: {self.allowed:.1f})"
        )


def trends(samples: Mapping[str, Sequence[Sample]], *, allowed: float) -> list[Trend]:
    """Return the trend of each process; ``allowed`` is MiB per 100,000 callbacks."""
    return [_trend(name, seen, allowed) for name, seen in samples.items()]


def faults(found: Sequence[Trend]) -> list[str]:
    """Return which processes' memory is not flat."""
    return [f"memory is not flat: {trend.told()}" for trend in found if trend.grown > trend.allowed]


def raw(samples: Mapping[str, Sequence[Sample]]) -> str:
    """Return all samples, a line for each process."""
    return "\n".join(
        f"{name}, callbacks:MiB " + " ".join(f"{one.sent}:{one.rss:.1f}" for one in seen)
        for name, seen in samples.items()
    )


def _trend(name: str, seen: Sequence[Sample], allowed: float) -> Trend:
    end = seen[-1].sent
    warm = max(end // 10, min(_WARM, end // 2))
    part = [one for one in seen if one.sent >= warm]
    if len(part) < _LOOKS:
        raise ValueError(f"{len(part)} samples of {name} after the warm-up are too few to fit a line to")
    line = statistics.linear_regression([one.sent for one in part], [one.rss for one in part])
    return Trend(
        name=name,
        warm=warm,
        end=end,
        first=part[0].rss,
        last=part[-1].rss,
        rise=line.slope * PER,
        allowed=max(_FILLING, allowed * (end - warm) / PER),
    )
