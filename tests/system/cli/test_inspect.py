"""``ferroscope inspect`` sees simulated machines through, beside a real service."""

from __future__ import annotations

import json
import re

import pytest

from ferroscope_client.client import Client
from ferroscope_client.core.explanations import HINTS
from ferroscope_client.core.reasons import Reason
from ferroscope_client.errors import Exit
from ferroscope_sim.enroll import enroll
from ferroscope_sim.model import roster
from ferroscope_sim.run import FleetThread
from tests.support.processes import PATIENCE, until
from tests.system.cli.console import Shell


@pytest.fixture
def names(running: Shell, fleet: FleetThread) -> list[str]:
    """Enrol the fleet and return its names."""
    members = roster(fleet.fleet.settings)
    done = enroll(members, api_url=running.url, sim_address=fleet.address)
    assert not done.failed
    return [member.name for member in members]


def test_inspections_are_watched_to_their_end(running: Shell, names: list[str]) -> None:
    lines = running.lines("inspect", *names, "--watch", "--timeout", f"{PATIENCE:.0f}")
    assert lines[-1] == "3 finished"
    assert lines[0].endswith("0/3  3 to start")
    assert lines[-2].endswith("3/3  3 finished")
    assert "finished" in running.lines("node", "timeline", names[0])[0]
    assert running.json("node", "inventory", names[0])["inventory"]["cpu"]["architecture"]


def test_programs_get_one_document_and_the_progress_elsewhere(running: Shell, names: list[str]) -> None:
    result = running("inspect", *names, "--watch", "-o", "json", check=0)
    ends = json.loads(result.stdout)
    assert {end["node"]: end["result"] for end in ends} == dict.fromkeys(names, "finished")
    assert all(end["seconds"] > 0 for end in ends)
    assert "3 finished" in result.stderr


@pytest.mark.parametrize("fleet", [("sim-ramdisk-error-1", "sim-power-fail-2")], indirect=True)
def test_failures_are_reported_with_reason_and_hint_and_decide_the_exit_code(running: Shell, names: list[str]) -> None:
    result = running("inspect", "--all", "--wait", "--timeout", f"{PATIENCE:.0f}", check=Exit.FAILURE)
    assert result.stdout.splitlines()[-1] == "3 finished, 2 failed"
    assert "ramdisk-error" in result.stdout
    assert "bmc-refused" in result.stdout
    assert HINTS[Reason.BMC_REFUSED] in result.stdout
    again = running.json("inspect", "--failed", "--wait", check=Exit.FAILURE)
    assert {end["node"]: end["reason"] for end in again} == {
        "sim-ramdisk-error-1": "ramdisk-error",
        "sim-power-fail-2": "bmc-refused",
    }


def test_status_counts_nodes_by_state_and_errors_by_reason(running: Shell, names: list[str]) -> None:
    running("inspect", *names, check=0)
    running("node", "abort", names[0], check=0)
    running("inspect", *names[1:], "--join", "--wait", check=0)
    assert until(lambda: running.json("status")["members"][0]["loops"]), "told with a heartbeat"
    status = running.json("status")
    assert sum(status["nodes"].values()) >= 3
    output = Client(running.url).get("/v1/status")
    assert set(output) <= set(status), "programs get what the API says, and where that was"
    assert (set(status) - set(output), output["nodes"]) == ({"url", "api_version"}, status["nodes"])
    assert f"1 machine has the error aborted: {names[0]}" in [problem["summary"] for problem in status["problems"]]
    assert {lease["own"] for lease in status["leases"]} == {True}
    assert {lane: counts["busy"] <= counts["slots"] for lane, counts in status["members"][0]["lanes"].items()} == {
        "bmc": True,
        "compute": True,
    }
    shown = running("status", check=0).stdout
    assert "aborted" in shown
    assert re.search(r"periodic/timeouts +all@\S+ +1 +\d\.\d s", shown)
    assert re.search(r"http +serving requests", shown)


@pytest.mark.parametrize("fleet", [("sim-ramdisk-error-1",)], indirect=True)
def test_a_timeline_is_watched_until_the_inspection_is_over(running: Shell, names: list[str]) -> None:
    running("inspect", "sim-ramdisk-error-1", check=0)
    lines = running.lines("node", "timeline", "sim-ramdisk-error-1", "--watch")
    assert lines[0].split()[2] == "requested"
    assert sum("inspection requested" in line for line in lines) == 1
    assert "ramdisk-error" in lines[-2]
    assert HINTS[Reason.RAMDISK_ERROR] in lines[-1]


def test_a_node_that_was_never_inspected_has_nothing_to_watch(running: Shell, names: list[str]) -> None:
    assert "inspected" in running("node", "timeline", names[0], "--watch", check=Exit.NOT_FOUND).stderr


def test_watching_is_refused_to_programs(running: Shell) -> None:
    running("status", "--watch", "-o", "json", check=Exit.USAGE)
    running("node", "timeline", "n1", "--watch", "-o", "json", check=Exit.USAGE)
