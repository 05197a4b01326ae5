"""Chance repeats itself for a seed, and differs between purposes."""

from __future__ import annotations

from ferroscope_sim.client import Latency, latency_of


def test_latencies_are_summed_up() -> None:
    assert latency_of([]) == Latency()
    assert latency_of(float(second) for second in range(100, -1, -1)) == Latency(101, 50.0, 99.0, 100.0)
