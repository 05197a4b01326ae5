"""Limits of waits are multiples of this machine's measured speed."""

from __future__ import annotations

import os

import pytest

from tests.support import processes, speed


def test_a_quick_machine_gets_the_usual_limits_a_slow_one_more_and_none_without_end() -> None:
    assert speed.factor(0.01) == speed.factor(0.15) == 1.0
    assert speed.factor(0.6) == pytest.approx(4.0)
    assert speed.factor(1000.0) == 20.0


def test_what_one_process_measured_is_told_to_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(speed.VARIABLE)
    monkeypatch.setattr(speed, "_measured", lambda: 0.45)
    assert speed.slowness() == pytest.approx(3.0)
    monkeypatch.setattr(speed, "_measured", lambda: 0.15)
    assert speed.slowness() == pytest.approx(3.0)
    assert os.environ[speed.VARIABLE] == "3.00"


def test_a_wait_lasts_as_many_times_longer_as_the_machine_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(processes.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(processes.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setenv(speed.VARIABLE, "4")
    assert processes.until(lambda: now[0] > 7.0, seconds=2.0)
    assert not processes.until(lambda: now[0] > 17.0, seconds=2.0)


def test_a_test_that_hangs_is_ended_after_a_multiple_too(request: pytest.FixtureRequest) -> None:
    assert float(os.environ["PYTEST_TIMEOUT"]) >= 600 * speed.slowness() - 1
