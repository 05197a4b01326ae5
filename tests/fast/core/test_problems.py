"""The list of problems: which facts make which problems, in which order, and what keeps a node waiting."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ferroscope.core.boot_macs import FilterRecord
from ferroscope.core.counts import Backlog, Census, Failures, HardwareCondition
from ferroscope.core.model import ClockStep, Lease, Member
from ferroscope.core.problems import Facts, list_problems
from ferroscope.core.states import Event
from ferroscope_client.core import advice
from ferroscope_client.core.database_fault import DatabaseFailure, DatabaseFault
from ferroscope_client.core.finding import Finding
from ferroscope_client.core.obstacles import find_obstacle
from tests.support.rows import each

NOW: Final = 10_000.0
UUID: Final = "7f0c6e0e-0000-4000-8000-000000000001"
FULL: Final = DatabaseFailure(DatabaseFault.FULL, "the database has no room left: disk full")


def member(role: str = "worker", silent: float = 0.0, **detail: Any) -> Member:
    return Member(id=role, host="a", pid=1, role=role, started_at=1.0, expires_at=NOW + 5.0 - silent, detail=detail)


def lease(name: str, expired: float = 0.0, data: str = "") -> Lease:
    end, left = (NOW - expired, 0.0) if expired else (NOW + 5.0, 5.0)
    return Lease(
        name=name, holder="x", epoch=1, duration=6.0, acquired_at=1.0, renewed_at=1.0, expires_at=end, remaining=left,
        data=data,
    )  # fmt: skip


def old(event: Event, waiting: int = 1) -> Backlog:
    return Backlog(event=event, waiting=waiting, claimed=0, oldest=NOW - 301.0)


def codes(**facts: Any) -> list[str]:
    members = facts.pop("members", (member(),))
    return [problem.code for problem in list_problems(Facts(now=NOW, process="api@a:1", members=members, **facts))]


OPEN: Final = msgspec.json.encode(FilterRecord(open=True)).decode()
LEADS: Final = {"loops": {"periodic/timeouts": "campaigns", "periodic/retention": "periodic/retention is disabled"}}
REPORTED: Final = {"code": "certificate-expires", "verdict": "wrong", "summary": "soon", "advice": "renew it"}
CASES: Final[dict[str, tuple[dict[str, Any], list[str]]]] = {
    "nothing": ({}, []),
    "no worker": ({"members": (member("api"),)}, ["no-worker"]),
    "a dead worker": ({"members": (member(silent=30.0),)}, ["no-worker", "member-dead"]),
    "a full disk": ({"failure": FULL, "members": (member("all", 30.0), member("worker", 30.0))}, ["database-full"]),
    "a full disk, closed filter": (
        {
            "failure": FULL,
            "leases": (lease("pxe/x", 90.0), lease("periodic/timeouts", 90.0)),
            "members": (member("api", 9.0),),
        },
        ["database-full", "pxe-filter-closed"],
    ),
    "open filter": ({"leases": (lease("pxe/x", data=OPEN),)}, []),
    "filter that does not open": ({"leases": (lease("pxe/x"),)}, ["pxe-filter-closed"]),
    "leader gone": ({"leases": (lease("periodic/timeouts", 61.0),), "members": (member(**LEADS),)}, ["lease-not-held"]),
    "leader gone for a moment": ({"leases": (lease("periodic/timeouts", 59.0),), "members": (member(**LEADS),)}, []),
    "task disabled": ({"leases": (lease("periodic/retention", 61.0),), "members": (member(**LEADS),)}, []),
    "task of nobody": ({"leases": (lease("periodic/timeouts", 61.0),)}, []),
    "old request": ({"backlog": (old(Event.INSPECT),)}, ["queue-old"]),
    "old request that is carried out": ({"backlog": (old(Event.INSPECT, waiting=0),)}, []),
    "two report the same": (
        {"members": (member(problems=[REPORTED]), member("api", problems=[REPORTED]))},
        ["certificate-expires"],
    ),
    "clock": ({"skew": 2.0, "clock_steps": (ClockStep(id=1, seconds=60.0, at=NOW),)}, ["clock-stepped", "clock-skew"]),
    "machines": (
        {
            "failures": (
                Failures(reason="bmc-credentials", nodes=5, example="r1"),
                Failures(reason="", nodes=1, example="x"),
            ),
            "census": Census(inbox=1, condition=HardwareCondition(deviating=1, critical=1, failing_drives=1)),
            "orphans": True,
            "members": (),
        },
        [
            "no-worker",
            "machine-errors",
            "machine-errors",
            "inbox",
            "hardware-deviates",
            "health-critical",
            "drives-failing",
            "orphans",
        ],
    ),
    "boot": ({"hidden_api": True, "unmanaged_boot": True}, ["api-on-loopback", "unmanaged-boot"]),
    "boot with a filter": ({"unmanaged_boot": True, "leases": (lease("pxe/x", data=OPEN),)}, []),
    "errors before notes": (
        {"backlog": (old(Event.VERIFY),), "shared_hardware": (Finding("nodes-are-one-machine", "wrong", "two"),)},
        ["nodes-are-one-machine", "queue-old"],
    ),
}


@each("name", CASES)
def test_facts_make_problems_in_order(name: str) -> None:
    facts, expected = CASES[name]
    assert codes(**facts) == expected


def test_a_list_that_is_cut_says_how_many_more_and_the_command_lists_them() -> None:
    facts = Facts(now=NOW, members=(member(),), failures=(Failures(reason="timeout", nodes=1_200, example="r1"),))
    (problem,) = list_problems(facts)
    assert problem.summary == "1,200 machines have the error timeout: r1 and 1,199 more"
    assert problem.advice.endswith(" List them: ferroscope search reason==timeout")


def test_the_process_that_answers_is_alive_although_it_cannot_write_that() -> None:
    own = member("all", silent=60.0)
    assert Facts(now=NOW, process=own.name, failure=FULL).is_alive(own)
    assert not Facts(now=NOW, process=own.name).is_alive(own)
    assert not Facts(now=NOW, process="api@b:2", failure=FULL).is_alive(own)


def test_an_old_request_whose_lane_is_full_says_that() -> None:
    full = member(lanes={"bmc": {"slots": 16, "busy": 16}, "compute": {"slots": 2, "busy": 0}})
    facts = Facts(now=NOW, members=(full,), backlog=(old(Event.INSPECT), old(Event.CONTINUE)))
    assert ["16 slots" in problem.summary for problem in list_problems(facts)] == [True, False]


def view(*problems: str, slots: int = 16, busy: int = 0, search: str = "") -> dict[str, Any]:
    """Return what ``GET /v1/status`` shows."""
    lanes = {"bmc": {"slots": slots, "busy": busy}}
    return {
        "problems": [
            {"code": code, "verdict": "wrong", "summary": code, "advice": "x", "search": search} for code in problems
        ],
        "members": [{"alive": True, "lanes": lanes}, {"alive": False, "lanes": {"bmc": {"slots": 99, "busy": 0}}}],
    }


@each(
    ("state", "status", "code"),
    [
        ("verifying", view(), None),
        ("verifying", view(slots=0), None),
        ("manageable", view("no-worker", busy=16), None),
        ("manageable", view("database-full"), "database-full"),
        ("verifying", view("clock-skew", "no-worker"), "no-worker"),
        ("inspecting", view("database-full", busy=16), "database-full"),
        ("inspecting", view("database-lost-commits"), None),
        ("inspecting", view(busy=16), "slots-busy"),
        ("inspect wait", view(busy=16), None),
        ("inspect wait", view("pxe-filter-closed"), "pxe-filter-closed"),
        ("verifying", view("pxe-filter-closed"), None),
        ("verifying", view("bmc-silent", search=f"uuid in (x, {UUID})"), "bmc-silent"),
        ("verifying", view("bmc-silent", search="uuid in (x)"), None),
    ],
)
def test_a_node_waits_for_what_stops_its_own_request(state: str, status: dict[str, Any], code: str | None) -> None:
    node = {"uuid": UUID, "name": "n", "provision_state": state, "last_error": None, "inbox": False}
    obstacle = find_obstacle(node, status)
    assert (obstacle and obstacle.code) == code
    commands = advice.commands(node, 0, obstacle)
    assert ("ferroscope status" in commands) == (code is not None)
    assert obstacle is None or obstacle.summary in advice.hint(node, "", obstacle)
    assert code != "database-full" or commands == ["ferroscope status"], "nothing can be written"
    assert state == "manageable" or not any(" inspect " in command for command in commands), "it is refused then"
