"""Chance that repeats itself: a number drawn for a seed and a purpose, the same in every run."""

from __future__ import annotations

import math
from hashlib import blake2b
from statistics import NormalDist
from typing import Final

_NORMAL: Final = NormalDist()


def draw(seed: int, *purpose: str | int) -> float:
    """Return an evenly spread number in [0, 1) for ``seed`` and ``purpose``."""
    text = f"{seed}/{'/'.join(map(str, purpose))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48


def spread(mean: float, jitter: float, seed: int, *purpose: str | int) -> float:
    """Return a number within ``mean`` ± ``jitter``, never below zero."""
    if not jitter:
        return mean
    return max(0.0, mean + jitter * (2 * draw(seed, *purpose) - 1))


def log_normal(median: float, sigma: float, seed: int, *purpose: str | int) -> float:
    """Return a number that is log-normal around ``median``; of a hundred one is about ``exp(2.3 * sigma)`` times it."""
    return median * math.exp(sigma * _NORMAL.inv_cdf(max(draw(seed, *purpose), 2**-48)))


def pick(count: int, among: int, seed: int, *purpose: str | int) -> list[int]:
    """Return ``count`` different numbers below ``among``, by chance, in the order in which they were drawn."""
    return sorted(range(among), key=lambda number: draw(seed, *purpose, number))[:count]
