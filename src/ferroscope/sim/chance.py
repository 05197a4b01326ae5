"""Chance that repeats itself: a number drawn for a seed and a purpose, the same in every run."""

from __future__ import annotations

from hashlib import blake2b


def draw(seed: int, *purpose: str | int) -> float:
    """Return an evenly spread number in [0, 1) for ``seed`` and ``purpose``."""
    text = f"{seed}/{'/'.join(map(str, purpose))}"
    return int.from_bytes(blake2b(text.encode(), digest_size=6).digest(), "big") / 2**48


def spread(mean: float, jitter: float, seed: int, *purpose: str | int) -> float:
    """Return a number within ``mean`` ± ``jitter``, never below zero."""
    if not jitter:
        return mean
    return max(0.0, mean + jitter * (2 * draw(seed, *purpose) - 1))
