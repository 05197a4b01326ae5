"""Chance repeats itself for a seed, and differs between purposes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ferroscope_sim.client import Latency, latency_of
from ferroscope_sim.model import draw, spread

numbers = st.integers(0, 2**40)


@given(seed=numbers, purpose=st.text(), count=numbers)
def test_a_draw_lies_between_zero_and_one_and_repeats_itself(seed: int, purpose: str, count: int) -> None:
    first = draw(seed, purpose, count)
    assert 0 <= first < 1
    assert draw(seed, purpose, count) == first


@given(seed=numbers, mean=st.floats(0, 100), jitter=st.floats(0, 100))
def test_a_spread_stays_within_its_bounds_and_above_zero(seed: int, mean: float, jitter: float) -> None:
    value = spread(mean, jitter, seed, "boot")
    assert max(0.0, mean - jitter) <= value <= mean + jitter


def test_latencies_are_summed_up() -> None:
    assert latency_of([]) == Latency()
    assert latency_of(float(second) for second in range(100, -1, -1)) == Latency(101, 50.0, 99.0, 100.0)
