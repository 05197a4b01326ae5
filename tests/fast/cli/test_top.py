"""The screen of ``ferroscope top``: what is on it, at any size."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from ferroscope.core.counts import Failures, HardwareCondition
from ferroscope.core.problems import list_machine_problems
from ferroscope_client.cli.text import width_of
from ferroscope_client.cli.top import Seen, lines, phase
from ferroscope_client.core.reasons import Reason
from tests.support.rows import each

NOW = datetime(2026, 11, 20, 14, 42, 36, tzinfo=UTC)
URL = "http://127.0.0.1:6385"


def member(name: str, *, alive: bool = True, busy: int = 0) -> dict[str, Any]:
    lanes = {"bmc": {"slots": 16, "busy": busy}}
    return {"name": name, "alive": alive, "age": 7200.0, "silent_for": 0.4, "lanes": lanes}


def lease(name: str, holder: str | None) -> dict[str, Any]:
    return {"name": name, "holder": holder, "epoch": 7, "remaining": 4.25}


def node(name: str, state: str = "inspecting", since: str = "2026-11-20T14:41:36+00:00") -> dict[str, Any]:
    started = "2026-11-20T14:41:36+00:00"
    return {"uuid": name, "name": name, "provision_state": state, "inspection_started_at": started,
            "provision_updated_at": since}  # fmt: skip


def failed(reason: Reason, nodes: int) -> dict[str, Any]:
    """Return a problem as ``GET /v1/status`` has it."""
    (found,) = list_machine_problems([Failures(reason=reason, nodes=nodes, example="rack1-u1")], 0, HardwareCondition())
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document


WRONG = {"code": "member-dead", "verdict": "wrong", "summary": "api@a:1 missed its heartbeats", "advice": "start it"}


def seen(**changes: Any) -> Seen:
    """Return a look at a service with many of everything."""
    status = {
        "members": [member(f"worker@b:{number}", busy=2) for number in range(8)] + [member("api@a:1", alive=False)],
        "leases": [lease(f"periodic/{number}", "worker@b:0") for number in range(5)] + [lease("periodic/x", None)],
        "nodes": {"inspecting": 30, "inspect wait": 12, "manageable": 1200},
        "queue": [{"event": "inspect", "waiting": 3, "claimed": 2, "oldest": 61.0}],
        "problems": [WRONG, failed(Reason.BMC_UNREACHABLE, 12), failed(Reason.TIMEOUT, 1)],
    }
    return Seen(status | changes, [node(f"rack1-u{number}") for number in range(24)])


def test_what_can_be_pasted_is_whole_on_the_narrowest_usual_terminal() -> None:
    for reason in Reason:
        shown = lines(seen(problems=[failed(reason, 10_000)]), 80, 24, URL, now=NOW)
        assert any(line.endswith(f" ferroscope search reason=={reason}") for line in shown), reason


def test_a_command_that_lists_machines_by_uuid_leaves_the_problem_whole() -> None:
    silent = WRONG | {"summary": "BMCs that do not respond: 192.0.2.9", "search": f"uuid in ({'x, ' * 40})"}
    (shown,) = (line for line in lines(seen(problems=[silent]), 80, 24, URL, now=NOW) if "BMCs" in line)
    assert shown == "BMCs that do not respond: 192.0.2.9  start it"


def test_what_needs_attention_comes_first() -> None:
    shown = lines(seen(), 80, 24, URL, now=NOW)
    assert shown[1] == "Problems  1 problem, 2 notes"
    assert [line.split()[0] for line in shown[shown.index("") + 2 :][:3]] == ["api@a:1", "12", "1"]
    members = [line for line in shown if "@" in line and line.startswith(("api", "worker"))][1:]
    assert members[0].split()[:2] == ["api@a:1", "DEAD"]
    leases = [line for line in shown if line.startswith("periodic/")]
    assert leases[0].split()[:2] == ["periodic/x", "NOBODY"]
    assert lines(seen(problems=[]), 80, 24, URL, now=NOW)[1] == "Problems  none"


@each("height", [1, 3, 10, 24, 60, 200])
@each("width", [20, 80, 200])
def test_it_fits_on_every_terminal(width: int, height: int) -> None:
    shown = lines(seen(), width, height, URL, now=NOW)
    assert 0 < len(shown) <= height
    assert max(map(width_of, shown)) <= width
    if height == 200:
        assert not any(line.startswith("...") for line in shown)


def test_a_service_that_is_away_is_one_line_and_the_last_data_stay() -> None:
    before = lines(seen(), 80, 24, URL, now=NOW)
    away = lines(seen(), 80, 24, URL, away="gone", now=NOW)
    assert away[1] == "gone"
    assert away[2:5] == before[1:4]
    assert lines(None, 80, 24, URL, away="gone", now=NOW)[1:] == ["gone"]


def test_control_characters_of_a_name_do_not_reach_the_terminal() -> None:
    found = Seen(seen().status, [node("a\x1b[2Jb")])
    assert "\x1b" not in "".join(lines(found, 80, 60, URL, now=NOW))


def test_the_phase_of_an_inspection_is_derived_from_its_times() -> None:
    assert phase(node("a")) == "starting"
    assert phase(node("a", "inspect wait")) == "waiting"
    assert phase(node("a", since="2026-11-20T14:42:00+00:00")) == "processing"
