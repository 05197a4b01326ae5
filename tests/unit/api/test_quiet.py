"""What anonymous callers cannot fill: the log, and the store's time."""

from __future__ import annotations

from ferroscope.api.http.rate_limit import QuietLog, Valve
from ferroscope.core.lookup import Refused
from ferroscope.core.reasons import Reason


def test_a_burst_is_logged_and_the_rest_is_counted_in_the_next_line() -> None:
    quiet = QuietLog(burst=2, period=10.0)
    assert [quiet.admit(now) for now in (0.0, 1.0, 2.0, 9.9)] == [0, 0, None, None]
    assert [quiet.admit(now) for now in (10.0, 10.1, 10.2)] == [2, 0, None]
    assert quiet.admit(100.0) == 1


def test_a_valve_is_closed_for_a_while_only() -> None:
    valve, refusal = Valve(), Refused(Reason.DISCOVERY_LIMITED, "too many")
    assert valve.refusal(0.0) is None
    valve.close(refusal, 5.0)
    assert valve.refusal(4.9) is refusal
    assert valve.refusal(5.0) is None
