"""``ferroscope failover``, its plan and its status, on a small API server; and what is said when it cannot start."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner

from ferroscope.config.load import load
from ferroscope.core.remediation import Phase, Proof, Remediation, log_evidence
from ferroscope.hardware import machine_identity
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from ferroscope_client.cli.main import main
from ferroscope_client.errors import Exit
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.test_client import kubeconfig, node_document, pod_document
from tests.support import examples
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.processes import PATIENCE, free_port


class _Cluster:
    """A cluster whose node n1 has failed, on machine m1, and the configuration of its controller."""

    def __init__(self, directory: Path, url: str, api: FaultyKubernetes) -> None:
        self.api = api
        self.file = directory / "failover.conf"
        self.kubeconfig = kubeconfig(api, directory)
        self.file.write_text(
            f"[database]\nconnection = {url}\n[drivers]\nenabled = sim\ncommand_timeout = 1\n"
            f"[failover]\nkubeconfig = {self.kubeconfig}\nrequest_timeout = 2\n"
        )
        self.file.chmod(0o600)
        for name in ("n2", "n3"):
            api.put("nodes", node_document(name))
        self.fail("n1", SYSTEM_UUID)
        identity: dict[str, Any] = {"serial": None, "uuid": SYSTEM_UUID, "macs": []}
        bmc = {"sim_address": f"127.0.0.1:{free_port()}", "sim_node": "m1"}
        machine = examples.node(
            name="m1", driver="sim", driver_info=bmc, internal={machine_identity.IDENTITY: identity}
        )
        self.change(lambda backend: backend.store.write(lambda tx: tx.nodes.add(machine)))

    def fail(self, name: str, system_uuid: str = "", **annotations: str) -> None:
        dead = node_document(name, "Unknown")
        dead["status"]["nodeInfo"]["systemUUID"] = system_uuid
        dead["metadata"]["annotations"] = {f"ferroscope.io/{key}": value for key, value in annotations.items()}
        self.api.put("nodes", dead)
        self.api.put("pods", pod_document(f"db-{name}", node=name))

    def change(self, work: Callable[[Backend], Any]) -> Any:
        backend = open_backend(load([str(self.file)]), clock=SystemClock(), stop=threading.Event(), listen=False)
        try:
            return work(backend)
        finally:
            backend.close()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command as a process, as operators do: what it logs must not be in what it prints."""
        command = [sys.executable, "-m", "ferroscope", "failover", *arguments, "-c", str(self.file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
        assert done.returncode == Exit.OK, done.stderr
        return done

    def shown(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json").stdout)


@pytest.fixture
def cluster(tmp_path: Path, sqlite_url: str) -> Iterator[_Cluster]:
    with FaultyKubernetes() as api:
        yield _Cluster(tmp_path, sqlite_url, api)


def test_the_plan_says_of_each_failed_node_what_would_be_done_and_why_not_more_and_changes_nothing(
    cluster: _Cluster,
) -> None:
    nodes = {one["node"]: one for one in cluster.shown("plan")["nodes"]}
    assert (nodes["n1"]["machine"], nodes["n1"]["phase"], nodes["n1"]["reason"]) == ("m1", "dwell", "dwell")
    for name in ("n4", "n5", "n6", "n7", "n8"):
        cluster.api.put("nodes", node_document(name))
    cluster.fail("n2", **{"failover-paused": "true"})
    nodes = {one["node"]: (one["machine"], one["reason"]) for one in cluster.shown("plan")["nodes"]}
    assert nodes == {"n1": ("m1", "dwell"), "n2": (None, "paused")}
    done = cluster.run("plan")
    assert "paused" in done.stdout
    assert "out-of-service taint" in done.stderr  # the server is old
    assert not {method for method, path in cluster.api.calls if "selfsubjectaccessreviews" not in path} - {"GET"}
    assert cluster.shown("status")["remediations"] == []


def test_the_plan_of_all_says_of_each_node_whether_it_is_protected_and_changes_nothing(cluster: _Cluster) -> None:
    """The BMC of m1 does not answer; n2 and n3 have no machine, and one UUID."""
    for name in ("n2", "n3"):
        node = node_document(name)
        node["status"]["nodeInfo"]["systemUUID"] = str(uuid.UUID(int=5 << 100))
        cluster.api.put("nodes", node)
    nodes = {one["node"]: one for one in cluster.shown("plan", "--all")["nodes"]}
    assert {name: (one["protected"], one["reason"]) for name, one in nodes.items()} == {
        "n1": (False, "bmc-error"),
        "n2": (False, "machine-unknown"),
        "n3": (False, "machine-unknown"),
    }
    assert (nodes["n1"]["machine"], nodes["n1"]["facts"]) == ("m1", ["system UUID"])
    assert (nodes["n1"]["bmc_answers"], nodes["n1"]["power"], nodes["n2"]["bmc_answers"]) == (False, None, None)
    shown = " ".join(cluster.run("plan", "--all").stdout.split())
    assert all(word in shown for word in ("NODE", "FACTS", "PROTECTED", "silent", "no: bmc-error"))
    assert "reason: machine-unknown" in cluster.run("plan", "--all", "-o", "yaml").stdout
    assert not {method for method, path in cluster.api.calls if "selfsubjectaccessreviews" not in path} - {"GET"}
    assert cluster.change(lambda backend: backend.store.read(lambda tx: tx.failover_nodes.list("default"))) == []


def test_the_status_has_the_evidence_of_each_remediation_newest_first(cluster: _Cluster) -> None:
    old = Remediation(uuid="1", cluster="default", node="n1", node_uid="u1", started_at=1.0, phase=Phase.DONE)
    old = log_evidence(msgspec.structs.replace(old, ended_at=9.0, proof=Proof.POWER_OFF), 8.0, "proven", "off twice")
    new = msgspec.structs.replace(old, uuid="2", node="n2", started_at=20.0, ended_at=29.0, log=())
    other = msgspec.structs.replace(old, uuid="3", cluster="another")

    def add(backend: Backend) -> None:
        for one in (old, new, other):
            backend.store.write(lambda tx, one=one: tx.remediations.save(one))  # type: ignore[misc]

    cluster.change(add)
    shown = cluster.shown("status")["remediations"]
    assert [(one["node"], one["proof"]) for one in shown] == [("n2", "power-off"), ("n1", "power-off")]
    assert shown[1]["log"][0]["what"] == "proven"
    assert [one["node"] for one in cluster.shown("status", "--limit", "1")["remediations"]] == ["n2"]


def test_the_status_says_which_machine_was_left_without_power(cluster: _Cluster) -> None:
    left = "machine m1, which was powered off for it, was left off"
    one = Remediation(
        uuid="1", cluster="default", node="n1", node_uid="u1", phase=Phase.DWELL, message="waiting", left_off=left
    )
    cluster.change(lambda backend: backend.store.write(lambda tx: tx.remediations.save(one)))
    said = " ".join(cluster.run("status").stdout.split())
    assert "left off" in said
    assert cluster.shown("status")["remediations"][0]["left_off"] == left


@pytest.mark.parametrize("command", ["plan", "status"])
def test_a_configuration_file_that_is_given_before_the_sub_command_counts(cluster: _Cluster, command: str) -> None:
    """The file names the database; without it the default one would be opened, which may be of another cluster."""
    cluster.change(
        lambda backend: backend.store.write(
            lambda tx: tx.remediations.save(
                Remediation(uuid="1", cluster="default", node="n1", node_uid="uid-n1", started_at=1.0)
            )
        )
    )
    result = CliRunner().invoke(main, ["failover", "-c", str(cluster.file), command, "-o", "json"])
    assert result.exit_code == Exit.OK, result.output
    shown = json.loads(result.stdout)
    assert [one["node"] for one in shown["nodes" if command == "plan" else "remediations"]] == ["n1"]
    # What comes after the sub-command counts more.
    result = CliRunner().invoke(main, ["failover", "-c", "/nowhere", command, "-c", str(cluster.file)])
    assert result.exit_code == Exit.OK, result.output


def _groups(command: click.Command, name: str) -> Iterator[tuple[str, click.Group]]:
    if isinstance(command, click.Group):
        yield name, command
        context = click.Context(command)
        for one in command.list_commands(context):
            found = command.get_command(context, one)
            assert found is not None
            yield from _groups(found, f"{name} {one}".strip())


def test_no_other_group_has_options_that_its_sub_commands_might_forget() -> None:
    groups = dict(_groups(main, ""))
    assert len(groups) > 10
    assert {name for name, group in groups.items() if group.params} == {"", "failover"}


def _no_kubeconfig(cluster: _Cluster) -> str:
    cluster.kubeconfig.unlink()
    return "[failover] kubeconfig"


def _no_right(cluster: _Cluster) -> str:
    cluster.api.denied = {("list", "pods")}
    return '{apiGroups: [""], resources: ["pods"], verbs: ["list"]}'


@pytest.mark.parametrize("command", [(), ("plan",)], ids=["role", "plan"])
@pytest.mark.parametrize("wrong", [_no_kubeconfig, _no_right])
def test_what_keeps_it_from_starting_is_said_in_one_line(
    cluster: _Cluster, command: tuple[str, ...], wrong: Callable[[_Cluster], str]
) -> None:
    named = wrong(cluster)
    result = CliRunner().invoke(main, ["failover", *command, "-c", str(cluster.file)])
    is_refused = wrong is _no_kubeconfig and not command
    assert result.exit_code == (Exit.CONFIGURATION if is_refused else Exit.FAILURE), result.output
    assert named in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_pause_is_shown_until_it_is_ended(cluster: _Cluster) -> None:
    def run(*words: str) -> str:
        done = CliRunner().invoke(main, ["failover", *words, "-c", str(cluster.file)])
        assert done.exit_code == Exit.OK, done.output
        return str(done.output)

    assert "remediations" in run("status")
    mistyped = CliRunner().invoke(main, ["failover", "pause", "--why", "x", "-c", str(cluster.file)])
    assert mistyped.exit_code == 1
    assert "nothing is paused" in mistyped.output
    cluster.change(lambda backend: backend.store.write(lambda tx: tx.leases.acquire("failover/default", "me", 1.0)))
    run("pause", "--why", "the hall has no power")
    assert "the hall has no power" in run("status")
    assert json.loads(run("status", "-o", "json"))["paused"]["why"] == "the hall has no power"
    assert "failover is paused: the hall has no power" in run("plan")
    run("resume")
    assert json.loads(run("status", "-o", "json"))["paused"] is None
    empty = CliRunner().invoke(main, ["failover", "pause", "--why", " ", "-c", str(cluster.file)])
    assert empty.exit_code == 2
