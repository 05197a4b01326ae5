"""A machine that boots is waited for; how long a node may be not ready, its labels may say."""

from __future__ import annotations

from typing import Any

from ferroscope.contracts.bmc import Power
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules, PowerOff
from tests.fast.contrib.kubernetes.failover.build import Case, node
from tests.support.rows import each


def _until_cut(case: Case) -> float:
    """Return after how many seconds from now it is powered off; the step is one second."""
    for seconds in range(1, 1000):
        if PowerOff() in case.step(1.0).effects:
            return float(seconds)
    raise AssertionError("never")


@each(
    ("shown", "seconds"),
    [
        ([{"booting": True}, {"booting": None}], 300.0),
        ([{"booting": False}], 20.0),
        ([{"booting": None}], 20.0),
        ([{"power": Power.OFF}, {"power": Power.ON}], 300.0),
        ([{"power": Power.CHANGING}, {"power": Power.ON}], 300.0),
        ([{"power": Power.UNKNOWN}, {"power": Power.ON}], 20.0),
    ],
)
def test_a_machine_whose_bmc_shows_a_boot_gets_five_minutes(shown: list[dict[str, Any]], seconds: float) -> None:
    case = Case()
    case.step()
    for state in shown:
        case.set(state)
        case.step(1.0)
    decision = case.step(1.0)
    assert ("it boots" in decision.message) is (seconds > 100.0)
    assert len(shown) + 1 + _until_cut(case) == seconds


def test_a_boot_that_was_seen_while_the_node_was_only_silent_counts() -> None:
    case = Case()
    case.node, case.silent, case.booting = node(ready="True"), 20.0, True
    case.step()
    case.booting, case.node = None, node()
    case.step(10.0)
    assert _until_cut(case) == 300.0


def test_what_our_own_power_off_shows_is_no_boot() -> None:
    case = Case()
    case.proven()
    assert case.record is not None
    assert case.record.boot == ""


@each(
    ("labels", "seconds"),
    [({}, 20.0), ({"pool": "storage"}, 600.0), ({"pool": "edge"}, 5.0), ({"pool": "storage", "slow": ""}, 900.0)],
)
def test_a_pool_of_nodes_has_its_own_dwell_time(labels: dict[str, str], seconds: float) -> None:
    case = Case(FailoverRules(patience=(("pool:storage", 600.0), ("pool:edge", 5.0), ("slow:", 900.0))))
    case.node = node(labels=labels)
    case.step()
    assert _until_cut(case) == seconds
