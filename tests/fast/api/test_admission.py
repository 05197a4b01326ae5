"""Limits on the calls of one caller; others are not affected."""

from __future__ import annotations

import pytest

from ferroscope.api.errors import TooManyError
from ferroscope.api.rate_limit import RateLimiter
from ferroscope.config.options import ApiSettings
from tests.support.manual_clock import ManualClock


def _call(admission: RateLimiter, caller: str) -> int:
    """Return 0 if a call is admitted, else the seconds that it has to wait."""
    try:
        with admission.admit(caller):
            return 0
    except TooManyError as exc:
        return int(exc.headers["Retry-After"])


def test_by_default_there_is_no_limit_of_a_caller() -> None:
    admission = RateLimiter(ApiSettings(), ManualClock())
    assert {_call(admission, "alice") for _ in range(5000)} == {0}


def test_a_caller_above_its_rate_has_to_wait_and_others_do_not() -> None:
    clock = ManualClock()
    admission = RateLimiter(ApiSettings(request_rate=0.5), clock, burst=3)
    assert [_call(admission, "alice") for _ in range(5)] == [0, 0, 0, 2, 2]
    assert _call(admission, "bob") == 0
    clock.now += 2
    assert [_call(admission, "alice") for _ in range(2)] == [0, 2]
    clock.now += 3600
    assert [_call(admission, "alice") for _ in range(4)] == [0, 0, 0, 2]


def test_a_caller_may_have_so_many_calls_at_once_also_after_one_has_failed() -> None:
    admission = RateLimiter(ApiSettings(max_concurrent_requests=2), ManualClock())

    def fail() -> None:
        with admission.admit("alice"):
            assert _call(admission, "alice") == 1
            assert _call(admission, "bob") == 0
            raise ZeroDivisionError

    with admission.admit("alice"):
        with pytest.raises(ZeroDivisionError):
            fail()
        assert _call(admission, "alice") == 0


def test_what_counts_for_nobody_is_never_limited() -> None:
    admission = RateLimiter(ApiSettings(max_concurrent_requests=1, request_rate=0.001), ManualClock(), burst=1)
    assert {_call(admission, "") for _ in range(10)} == {0}


def test_the_memory_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferroscope.api.rate_limit._MAX_KEYS", 10)
    admission = RateLimiter(ApiSettings(request_rate=0.001), ManualClock(), burst=1)
    for number in range(100):
        assert _call(admission, f"192.0.2.{number}") == 0
    assert len(admission._requests._buckets) == 10
    assert not admission._running
