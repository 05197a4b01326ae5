"""The criterion of flat memory tells a leak from caches that fill, and from noise."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.fuzz.flatness import Sample, faults, trends
from tests.support.rows import each


def samples(callbacks: int, rss: Callable[[int], float]) -> dict[str, list[Sample]]:
    """Return a hundred samples with noise, as a run takes them."""
    chance = random.Random(1)
    step = callbacks // 100
    return {"api": [Sample(sent, rss(sent) + chance.uniform(-1, 1)) for sent in range(0, callbacks + 1, step)]}


@each("callbacks", [20_000, 100_000, 1_000_000])
def test_what_fills_up_and_stays_is_flat(callbacks: int) -> None:
    found = trends(samples(callbacks, lambda sent: 70 + min(sent, 50_000) / 5_000), allowed=1.0)
    assert faults(found) == []


@each("leaked", [15, 100, 1000])
def test_a_few_bytes_for_each_of_a_million_callbacks_are_found(leaked: int) -> None:
    (fault,) = faults(trends(samples(1_000_000, lambda sent: 70 + sent * leaked / 2**20), allowed=1.0))
    assert fault.startswith("memory is not flat: api: ")
    assert " MiB per 100000, " in fault


def test_a_run_without_enough_samples_proves_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        trends({"api": [Sample(number, 70.0) for number in range(10)]}, allowed=1.0)
