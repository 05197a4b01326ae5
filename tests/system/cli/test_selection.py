"""Which nodes a command is done to: selected ones with care, named ones as they are named."""

from __future__ import annotations

import os
import pty
import shlex
import signal
import subprocess
import sys

import pytest

from ferroscope_client.core.states import Provision, State
from ferroscope_client.errors import Exit
from tests.api.service import Service
from tests.support.processes import PATIENCE
from tests.system.cli.console import Shell


@pytest.fixture
def fleet(service: Service, shell: Shell) -> dict[str, str]:
    """Enrol nodes of every kind; return their UUIDs by name."""
    names = ("sim-10", "sim-2", "idle", "broken", "ready", "used", "new-1")
    uuids = {name: service.enrol(name=name) for name in names}
    for name in names[:-1]:
        node = service.node(name)
        node.provision_state = Provision.MANAGEABLE
        service.store.write(lambda tx, node=node: tx.nodes.update(node))  # type: ignore[misc]
    shell("node", "set", "broken", "--maintenance", "--reason", "bad DIMM", check=0)
    service.inspect(uuids["ready"])
    shell("node", "provide", "ready", check=0)
    node = service.node("used")
    node.instance_uuid = "6b0c0d6c-6b3f-4a57-9c0e-4b7b8f1f0a11"
    service.store.write(lambda tx: tx.nodes.update(node))
    return uuids


def started(service: Service, fleet: dict[str, str]) -> set[str]:
    return {name for name, uuid in fleet.items() if service.node(uuid).state is State.STARTING}


def test_all_leaves_out_maintenance_and_what_cannot_be_inspected(
    shell: Shell, service: Service, fleet: dict[str, str]
) -> None:
    result = shell("inspect", "--all", check=0)
    assert started(service, fleet) == {"sim-10", "sim-2", "idle"}
    assert "skipped: 1 available, 1 enroll, 1 in maintenance, 1 in use" in result.stdout.splitlines()
    assert "ferroscope inspect --state enroll" in result.stdout


def test_a_named_node_in_maintenance_is_inspected_and_it_is_said(
    shell: Shell, service: Service, fleet: dict[str, str]
) -> None:
    assert "bad DIMM" in shell("inspect", "broken", check=0).stdout
    assert started(service, fleet) == {"broken"}


def test_labels_choose_nodes_and_narrow_other_choices(shell: Shell, service: Service, fleet: dict[str, str]) -> None:
    shell("node", "set", "sim-*", "broken", "--label", "rack=r1", "--label", "spare", "--yes", check=0)
    shell("node", "set", "sim-2", "--label", "rack=r2", check=0)
    assert {one["name"] for one in shell.json("node", "list", "-l", "rack=r1,spare")} == {"sim-10", "broken"}
    shell("node", "set", "-l", "spare,rack!=r2", "--unset-label", "spare", "--unset-label", "absent", "--yes", check=0)
    assert [one["name"] for one in shell.json("node", "list", "-l", "spare")] == ["sim-2"]
    assert shell("inspect", "--failed", "-l", "rack", check=0)
    assert started(service, fleet) == set()
    assert "1 in maintenance" in shell("inspect", "-l", "rack in (r1)", check=0).stdout
    assert started(service, fleet) == {"sim-10"}
    shell("inspect", "sim-*", "-l", "rack=r2", check=0)
    assert started(service, fleet) == {"sim-2", "sim-10"}


@pytest.mark.parametrize("wrong", [("sim-2", "-l", "rack"), ("-l", "a b"), ("--all", "--failed", "-l", "rack")])
def test_a_selection_that_contradicts_itself_is_a_usage_error(
    shell: Shell, service: Service, fleet: dict[str, str], wrong: tuple[str, ...]
) -> None:
    shell("inspect", *wrong, check=Exit.USAGE)
    assert started(service, fleet) == set()


def test_a_dry_run_shows_the_plan_in_natural_order_and_changes_nothing(
    shell: Shell, service: Service, fleet: dict[str, str]
) -> None:
    plan = shell.json("inspect", "--all", "--dry-run")
    assert [one["node"] for one in plan if one["result"] != "skipped"] == ["idle", "sim-2", "sim-10"]
    assert {one["node"]: one["why"] for one in plan if one["result"] == "skipped"} == {
        "broken": "in maintenance: bad DIMM",
        "new-1": "enroll",
        "ready": "available",
        "used": "in use",
    }
    assert started(service, fleet) == set()


@pytest.mark.parametrize(
    ("arguments", "again"),
    [
        (("sim-*",), ["sim-*", "--join", "--watch"]),
        (("--state", "manageable"), ["idle", "sim-2", "sim-10", "--join", "--watch"]),
    ],
)
def test_after_an_interrupt_the_advice_is_about_the_same_nodes(
    shell: Shell, service: Service, fleet: dict[str, str], arguments: tuple[str, ...], again: list[str]
) -> None:
    command = [sys.executable, "-m", "ferroscope", "inspect", *arguments, "--watch", "--url", shell.url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        while "inspecting" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == Exit.INTERRUPTED
    advised = shlex.split(errors.splitlines()[-1].partition(": ")[2])
    assert advised == ["ferroscope", "inspect", *again, "--url", shell.url]


@pytest.mark.parametrize(("typed", "chosen"), [("n\n", set()), ("y\n", {"sim-10", "sim-2", "idle"})])
def test_a_terminal_is_asked_before_machines_are_power_cycled(
    shell: Shell, service: Service, fleet: dict[str, str], typed: str, chosen: set[str]
) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "ferroscope", "inspect", "--all", "--url", shell.url]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        output, _ = process.communicate(timeout=PATIENCE)
        os.close(ours)
    assert "3 machines" in output
    assert started(service, fleet) == chosen


def test_many_nodes_are_changed_and_powered_at_once(shell: Shell, service: Service, fleet: dict[str, str]) -> None:
    changed = shell.json("node", "set", "sim-*", "idle", "--owner", "ops", "--retired", "--reason", "keep")
    assert [(one["node"], one["result"]) for one in changed] == [
        ("sim-2", "changed"), ("sim-10", "changed"), ("idle", "changed"),
    ]  # fmt: skip
    node = shell.json("node", "show", "sim-10")
    assert (node["owner"], node["retired"], node["retired_reason"]) == ("ops", True, "keep")
    shell("node", "set", "sim-10", "--not-retired", "--not-protected", check=0)
    assert shell.json("node", "show", "sim-10")["retired_reason"] is None
    shell("node", "set", "sim-2", "idle", "--name", "x", check=Exit.USAGE)
    assert {one["node"] for one in shell.json("node", "power", "sim-2", "idle", "on")} == {"sim-2", "idle"}
    assert {one["node"] for one in shell.json("node", "power", "--all", "off", "--dry-run") if one["why"]} == {
        "broken", "used",
    }  # fmt: skip
    assert len(shell.json("node", "power", "*")) == len(fleet)
