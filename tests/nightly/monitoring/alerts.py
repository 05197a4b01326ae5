"""What each alert of deploy/prometheus fires on and what it does not, as input of ``promtool test rules``.

A case changes some series of a healthy service, in promtool's notation: ``1+0x40`` is 41 samples of 1, ``0+1x40`` rises
by one with each. Samples are a minute apart.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.contracts.telemetry import FAILOVER_PROBLEMS

_MINUTES: Final = 40
_DAY: Final = 86400


class Case(msgspec.Struct, frozen=True):
    """The alert fires after ``after`` minutes with ``bad`` in place of the healthy series, and never with ``good``.

    ``later``: it does not fire before that, because a short disturbance is no reason. None: the series is missing.
    """

    bad: dict[str, str | None]
    good: dict[str, str | None]
    after: int
    later: int = 0


def flat(value: float) -> str:
    return f"{value:g}+0x{_MINUTES}"


def rising(step: float) -> str:
    return f"0+{step:g}x{_MINUTES}"


UP: Final = 'ferroscope_database_up{instance="a"}'
TIMEOUTS: Final = 'ferroscope_lease_held{lease="periodic/timeouts"}'
EPOCH: Final = 'ferroscope_lease_epoch{lease="periodic/timeouts"}'
OTHER_EPOCH: Final = 'ferroscope_lease_epoch{lease="backup"}'
RENEWALS: Final = 'ferroscope_lease_renewal_failures_total{instance="a",lease="periodic/timeouts"}'
SKEW: Final = 'ferroscope_clock_skew_seconds{instance="a"}'
CERTIFICATE: Final = 'ferroscope_certificate_expiry_timestamp_seconds{instance="a",file="tls.crt"}'
PENDING: Final = 'ferroscope_events_oldest_pending_seconds{target="t"}'
DEAD: Final = 'ferroscope_events{target="t",state="dead"}'
QUEUE: Final = 'ferroscope_queue_oldest_seconds{event="inspect"}'
SLOTS: Final = 'ferroscope_worker_slots{lane="bmc"}'
BUSY: Final = 'ferroscope_worker_slots_busy{lane="bmc"}'
FAILED: Final = 'ferroscope_inspection_failures_total{reason="timeout"}'
ABORTED: Final = 'ferroscope_inspection_failures_total{reason="aborted"}'
FINISHED: Final = 'ferroscope_transitions_total{source="processing",event="finish",target="finished"}'
DIMMS: Final = 'ferroscope_hardware_changes_total{kind="dimm",what="removed"}'
DRIVES: Final = 'ferroscope_nodes_with_failing_drives{instance="a"}'
OPEN_A: Final = 'ferroscope_pxe_filter_open{instance="a",network="rack1"}'
OPEN_B: Final = 'ferroscope_pxe_filter_open{instance="b",network="rack1"}'
CONTROLLER: Final = 'ferroscope_lease_held{lease="failover/default"}'
# Of the leader, and of one that has led.
PROBLEMS: Final = {
    (code, process): f'ferroscope_failover_problems{{instance="{process}",cluster="default",code="{code}"}}'
    for code in FAILOVER_PROBLEMS
    for process in "ab"
}

HEALTHY: Final[dict[str, str]] = {
    UP: flat(1), TIMEOUTS: flat(1), EPOCH: flat(7), OTHER_EPOCH: rising(3),
    RENEWALS: flat(0), SKEW: flat(0.01), CERTIFICATE: flat(90 * _DAY), PENDING: flat(2), DEAD: flat(0),
    QUEUE: flat(3), SLOTS: flat(16), BUSY: flat(4), FAILED: rising(0.1), ABORTED: rising(5), FINISHED: rising(5),
    DIMMS: flat(1), DRIVES: flat(0), OPEN_A: flat(1), OPEN_B: flat(0),
    CONTROLLER: flat(1), **dict.fromkeys(PROBLEMS.values(), flat(0)),
}  # fmt: skip


def series(code: str, verdict: str = "wrong") -> str:
    return f'ferroscope_problems{{instance="a",code="{code}",verdict="{verdict}"}}'


def _problem(code: str, *, after: int, later: int = 0) -> Case:
    """Return the case of a problem that the leader has, or that was over a minute later."""
    leader = PROBLEMS[code, "a"]
    return Case(bad={leader: flat(2)}, good={leader: "0x5 1 0x40"}, after=after, later=later)


CASES: Final[dict[str, Case]] = {
    "FerroscopeApiMissing": Case(bad={UP: None}, good={UP: flat(1)}, after=3, later=1),
    "FerroscopeDatabaseDown": Case(
        bad={series("database-full"): flat(1)}, good={UP: "1x10 0 1x40", series("database-locked"): "1 0x40"}, after=2
    ),
    "FerroscopeNoWorker": Case(bad={series("no-worker"): flat(1)}, good={series("inbox", "note"): flat(1)}, after=2),
    "FerroscopeMembersMissing": Case(
        bad={series("member-dead"): flat(1)}, good={series("member-dead"): "1x3 0x40"}, after=6, later=3
    ),
    "FerroscopeProblem": Case(
        bad={series("settings-differ"): flat(1)},
        good={series("clock-skew"): flat(1), series("machine-errors", "note"): flat(1)},
        after=6,
        later=3,
    ),
    "FerroscopeNoLeader": Case(bad={TIMEOUTS: flat(0)}, good={TIMEOUTS: "1x10 0 1x40"}, after=2),
    "FerroscopeLeaderChanges": Case(bad={EPOCH: rising(1)}, good={EPOCH: rising(0.25)}, after=15),
    "FerroscopeLeaseRenewalsFail": Case(bad={RENEWALS: rising(1)}, good={RENEWALS: rising(0.1)}, after=15),
    "FerroscopeClockSkew": Case(bad={SKEW: flat(-2)}, good={SKEW: flat(0.9)}, after=6, later=3),
    "FerroscopeCertificateExpires": Case(
        bad={CERTIFICATE: flat(13 * _DAY)}, good={CERTIFICATE: flat(15 * _DAY)}, after=1
    ),
    "FerroscopeEventsDelayed": Case(bad={PENDING: flat(1000)}, good={PENDING: flat(800)}, after=6, later=3),
    "FerroscopeEventsGivenUp": Case(bad={DEAD: flat(1)}, good={DEAD: flat(0)}, after=1),
    "FerroscopeQueueOld": Case(bad={QUEUE: flat(301)}, good={QUEUE: flat(299)}, after=2),
    "FerroscopeSlotsBusy": Case(bad={BUSY: flat(15)}, good={BUSY: flat(14)}, after=11, later=8),
    "FerroscopeInspectionsFail": Case(
        bad={FAILED: rising(0.3), FINISHED: rising(1)}, good={FAILED: rising(0.3)}, after=35
    ),
    "FerroscopeReasonRepeats": Case(bad={FAILED: rising(0.5)}, good={FAILED: rising(0.2)}, after=35),
    "FerroscopePartsRemoved": Case(
        bad={DIMMS: "0x10 1x30"},
        good={
            'ferroscope_hardware_changes_total{kind="dimm",what="added"}': "0x10 1x30",
            'ferroscope_hardware_changes_total{kind="health",what="removed"}': "0x10 1x30",
        },
        after=12,
    ),
    "FerroscopeDrivesFail": Case(bad={DRIVES: flat(1)}, good={DRIVES: flat(0)}, after=1),
    "FerroscopePxeFilterClosed": Case(bad={OPEN_A: flat(0)}, good={OPEN_A: "1x9 0 1x40"}, after=2),
    "FerroscopePxeFilterOpenTwice": Case(
        bad={OPEN_B: flat(1)}, good={OPEN_A: "1x10 0x40", OPEN_B: "0x9 1x40"}, after=3, later=1
    ),
    "FerroscopeFailoverNoLeader": Case(bad={CONTROLLER: flat(0)}, good={CONTROLLER: "1x10 0 1x40"}, after=3, later=1),
    "FerroscopeFailoverUnreadable": _problem("unreadable", after=2),
    "FerroscopeFailoverStuck": _problem("stuck", after=2),
    "FerroscopeFailoverStorm": _problem("storm", after=2),
    "FerroscopeMachinesLeftOff": _problem("left-off", after=2),
    "FerroscopeNodesNotProtected": _problem("not-protected", after=16, later=13),
    "FerroscopeFailoverPaused": _problem("paused", after=16, later=13),
}  # fmt: skip


def unit_tests(rules: str) -> dict[str, Any]:
    """Return the file for ``promtool test rules``: each alert alone fires on its case, and nothing otherwise."""
    tests = [_test("healthy", {}, dict.fromkeys(range(0, _MINUTES, 5), ""))]
    for name, case in CASES.items():
        fires = {case.later: "", case.after: name} if case.later else {case.after: name}
        tests.append(_test(f"{name} fires", case.bad, fires))
        tests.append(_test(f"{name} does not fire", case.good, dict.fromkeys(range(0, _MINUTES, 5), "")))
    return {"rule_files": [rules], "evaluation_interval": "1m", "tests": tests}


def _test(name: str, changed: dict[str, str | None], expected: dict[int, str]) -> dict[str, Any]:
    series = {one: values for one, values in (HEALTHY | changed).items() if values is not None}
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert else [],
            }
            for minute, alert in expected.items()
        ],
    }
