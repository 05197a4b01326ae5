"""Machines and nodes kept in step: what is written where, what is told, and what an interruption leaves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.contracts.errors import LeaseLostError, NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.core.states import State
from tests.fast.machines.conftest import BMC, MAC, Stage
from tests.support.faulty_kubernetes import answering
from tests.support.faulty_machines import FaultyMachines

SPEC: dict[str, Any] = {"bmc": BMC, "macs": [MAC]}


def test_an_applied_machine_is_enrolled_and_shown(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC | {"labels": {"rack": "7"}, "description": "x", "resourceClass": "big"})
    stage.settle()
    node = stage.node()
    assert (node.driver, node.driver_info["redfish_address"]) == ("redfish", "https://192.0.2.10")
    assert (node.driver_info["redfish_username"], node.driver_info["redfish_password"]) == ("root", "correct horse")
    assert node.labels == {"rack": "7"}
    assert (node.resource_class, node.attributes["description"]) == ("big", "x")
    assert stage.macs() == [MAC]
    machine = api.machine("a")
    assert machine is not None
    status = machine["status"]
    assert (status["nodeUUID"], status["state"], status["observedGeneration"]) == (node.uuid, "enroll", 1)
    assert api.condition("a", "Enrolled") == ("True", "Enrolled")
    assert api.condition("a", "InStep") == ("True", "InStep")
    assert api.condition("a", "Inspected") == ("False", "NeverInspected")
    assert [one["reason"] for one in api.events] == ["Enrolled"]
    # Finalizer and status: nothing more is written to the object.
    assert stage.written() == [("PATCH", "machines", "a", ""), ("PATCH", "machines", "a", "status")]


def test_an_idle_hour_writes_nothing(stage: Stage, api: FaultyMachines) -> None:
    for number in range(5):
        own = {"macs": [f"52:54:00:00:00:{number:02x}"], "bmc": BMC | {"address": f"192.0.2.{number + 1}"}}
        api.apply(f"m{number}", SPEC | own)
    stage.settle()
    stage.written()
    versions = [node.version for node in stage.every()]
    events = len(api.events)
    for _ in range(60):
        stage.step(ahead=60)
    assert stage.written() == []
    assert [node.version for node in stage.every()] == versions
    assert len(api.events) == events


def test_changes_of_the_object_reach_the_node_and_only_they(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC | {"description": "x"})
    stage.settle()
    stage.change("a", owner="somebody")
    more = "52:54:00:00:00:02"
    bmc = BMC | {"options": {"redfish_system_id": "/redfish/v1/Systems/1"}}
    api.apply("a", {"bmc": bmc, "macs": [more], "name": "b"})
    stage.settle()
    node = stage.node("b")
    assert (node.owner, node.attributes.get("description")) == ("somebody", None)
    assert node.driver_info["redfish_system_id"] == "/redfish/v1/Systems/1"
    assert stage.macs("b") == [more]
    assert api.condition("a", "InStep") == ("True", "InStep")


def test_a_new_bmc_address_gets_its_credentials_again(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    stage.settle()
    api.apply("a", SPEC | {"bmc": BMC | {"address": "https://192.0.2.99"}})
    stage.settle()
    info = stage.node().driver_info
    assert (info["redfish_address"], info["redfish_password"]) == ("https://192.0.2.99", "correct horse")


def test_a_changed_secret_is_followed_once_and_never_told(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    stage.settle()
    api.secret("bmc", username="root", password="new secret words")
    stage.step(ahead=61)
    assert stage.node().driver_info["redfish_password"] == "new secret words"
    version = stage.node().version
    stage.step(ahead=61)
    assert stage.node().version == version
    told = repr((api.machine("a"), api.events))
    assert "secret words" not in told
    assert "correct horse" not in told


def test_a_missing_or_incomplete_secret_is_told_and_then_used(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC | {"bmc": BMC | {"credentialsSecret": "later"}})
    stage.settle()
    assert api.condition("a", "Enrolled") == ("False", "SecretNotFound")
    assert stage.every() == []
    api.secret("later", username="root")
    stage.step(ahead=61)
    assert api.condition("a", "Enrolled") == ("False", "SecretInvalid")
    api.secret("later", username="root", password="secret://file/stolen")
    stage.step(ahead=61)
    assert api.condition("a", "Enrolled") == ("False", "SecretInvalid")
    api.secret("later", username="root", password="found")
    stage.step(ahead=61)
    assert stage.node().driver_info["redfish_password"] == "found"
    assert api.condition("a", "Enrolled") == ("True", "Enrolled")


def test_a_field_changed_elsewhere_is_told_and_not_overwritten_until_that_is_ordered(
    stage: Stage, api: FaultyMachines
) -> None:
    api.apply("a", SPEC | {"resourceClass": "big"})
    stage.settle()
    stage.change("a", resource_class="small")
    stage.settle()
    assert api.condition("a", "InStep") == ("False", "ChangedElsewhere")
    assert stage.node().resource_class == "small"
    # On both sides: the same, and nobody is overwritten either.
    api.apply("a", SPEC | {"resourceClass": "huge"})
    stage.settle()
    assert api.condition("a", "InStep") == ("False", "ChangedOnBothSides")
    assert stage.node().resource_class == "small"
    stage.written()
    stage.step(ahead=61)
    assert stage.written() == []
    api.annotate("a", "ferroscope.io/apply", "")
    stage.settle()
    assert stage.node().resource_class == "huge"
    assert api.condition("a", "InStep") == ("True", "InStep")
    assert "ferroscope.io/apply" not in api.machine("a")["metadata"]["annotations"]  # type: ignore[index]


@pytest.mark.parametrize("fault", ["mac", "bmc", "name"])
def test_what_another_node_has_is_told_and_nothing_is_enrolled(stage: Stage, api: FaultyMachines, fault: str) -> None:
    api.apply("a", SPEC)
    stage.settle()
    other = {"mac": SPEC | {"bmc": BMC | {"address": "192.0.2.77"}}, "bmc": SPEC | {"macs": []},
             "name": {"name": "a", "bmc": BMC | {"address": "192.0.2.77"}}}[fault]  # fmt: skip
    api.apply("b", other)
    stage.settle()
    assert api.condition("b", "Enrolled") == ("False", "NameTaken" if fault == "name" else "Conflict")
    assert len(stage.every()) == 1
    assert [one["type"] for one in api.events if one["involvedObject"]["name"] == "b"] == ["Warning"]
    stage.written()
    # Deleting the loser does no harm to the winner.
    api.delete("b")
    stage.settle()
    assert api.machine("b") is None
    assert len(stage.every()) == 1


def test_an_empty_annotation_inspects_once_and_is_removed(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    stage.settle()
    api.annotate("a", "ferroscope/inspect", "")
    stage.settle()
    first = stage.node()
    assert first.state is State.STARTING
    assert api.condition("a", "Inspected") == ("False", "InProgress")
    assert api.machine("a")["metadata"]["annotations"] == {}  # type: ignore[index]
    assert "inspect" not in api.machine("a")["status"]  # type: ignore[index]
    stage.settle()
    assert stage.node().inspection == first.inspection
    stage.end_inspection()
    stage.settle()
    assert api.condition("a", "Inspected") == ("False", "BmcUnreachable")
    api.annotate("a", "ferroscope/inspect", "")
    stage.settle()
    assert stage.node().inspection != first.inspection


def test_a_value_inspects_once_and_stays(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC, annotations={"ferroscope.io/inspect": "2026-11"})
    stage.settle()
    first = stage.node().inspection
    assert first
    stage.restart()
    stage.settle()
    assert stage.node().inspection == first
    assert api.machine("a")["status"]["inspect"]["done"]  # type: ignore[index]
    stage.end_inspection()
    api.annotate("a", "ferroscope.io/inspect", "2026-12")
    stage.settle()
    assert stage.node().inspection != first


def test_a_deleted_machine_releases_its_node_and_says_why_it_cannot(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    stage.settle()
    stage.change("a", attributes={"protected": True})
    api.delete("a")
    stage.settle()
    assert api.condition("a", "Released") == ("False", "Protected")
    stage.change("a", attributes={}, instance_uuid="5f0c9c1e-7b1b-4f0e-8d35-2a7f5f0c9c1e")
    stage.settle()
    assert api.condition("a", "Released") == ("False", "InUse")
    assert len(stage.every()) == 1
    stage.written()
    stage.step(ahead=61)
    assert stage.written() == []
    stage.change("a", instance_uuid=None)
    stage.settle()
    assert api.machine("a") is None
    assert stage.every() == []


def test_a_machine_may_leave_its_node_behind(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC | {"onDelete": "Keep"})
    stage.settle()
    api.delete("a")
    stage.settle()
    assert (api.machine("a"), len(stage.every())) == (None, 1)


def test_a_node_deleted_elsewhere_is_not_enrolled_again(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    stage.settle()
    stage.nodes.delete("test", stage.node().uuid)
    stage.step(ahead=61)
    assert api.condition("a", "Enrolled") == ("False", "NodeDeleted")
    stage.written()
    stage.step(ahead=61)
    assert (stage.every(), stage.written()) == ([], [])


@pytest.mark.parametrize("stage", [{"adopt_nodes": False}, {"adopt_nodes": True}], indirect=True)
def test_a_node_is_taken_over_only_if_that_is_allowed(stage: Stage, api: FaultyMachines) -> None:
    uuid = "6a8f9d3e-0000-4000-8000-000000000001"
    stage.nodes.create("test", {"uuid": uuid, "name": "a", "driver": "redfish", "resource_class": "old"})
    api.apply("a", SPEC | {"uuid": uuid, "resourceClass": "new"})
    stage.settle()
    if not stage.settings.machines.adopt_nodes:
        assert api.condition("a", "Enrolled") == ("False", "Conflict")
        api.delete("a")
        stage.settle()
        assert stage.node().uuid == uuid
        return
    # What differs is told, and nobody's word is taken; what the node lacked it has now.
    assert api.condition("a", "InStep") == ("False", "ChangedOnBothSides")
    assert (stage.node().resource_class, stage.macs()) == ("old", [MAC])
    api.annotate("a", "ferroscope.io/apply", "yes")
    stage.settle()
    assert stage.node().resource_class == "new"
    api.apply("b", SPEC | {"uuid": uuid})
    stage.settle()
    assert api.condition("b", "Enrolled") == ("False", "Conflict")
    api.delete("b")
    stage.settle()
    assert stage.node().uuid == uuid


@pytest.mark.parametrize("stage", [{"observe_namespace": "others"}], indirect=True)
def test_other_nodes_appear_only_to_be_looked_at(stage: Stage, api: FaultyMachines) -> None:
    api.apply("mine", SPEC)
    stage.nodes.create("test", {"name": "theirs", "driver": "fake-hardware"})
    stage.nodes.create("test", {"name": "Not_A_Name", "driver": "fake-hardware"})
    stage.step()
    stage.step(ahead=61)
    stage.step(ahead=61)
    odd = stage.node("Not_A_Name")
    assert sorted(api.objects["machines"]) == sorted(["lab/mine", "others/theirs", f"others/{odd.uuid}"])
    assert api.condition("theirs", "Enrolled", "others") == ("True", "Observed")
    version = stage.node("theirs").version
    api.apply("theirs", api.machine("theirs", "others")["spec"] | {"name": "changed"}, namespace="others")  # type: ignore[index]
    stage.step(ahead=61)
    assert stage.node("theirs").version == version
    stage.nodes.delete("test", odd.uuid)
    stage.step(ahead=61)
    stage.step(ahead=61)
    assert sorted(api.objects["machines"]) == ["lab/mine", "others/theirs"]


@pytest.mark.parametrize("stage", [{"observe_namespace": "others"}], indirect=True)
def test_a_list_of_nodes_that_breaks_off_deletes_nothing(
    stage: Stage, api: FaultyMachines, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.nodes.create("test", {"name": "theirs", "driver": "fake-hardware"})
    stage.step()
    stage.step(ahead=61)

    def broken() -> Iterator[Node]:
        yield from ()
        raise NotFoundError("node", "marker")

    monkeypatch.setattr(stage.nodes, "every", broken)
    stage.step(ahead=61)
    assert list(api.objects["machines"]) == ["others/theirs"]


def test_a_former_leader_changes_nothing(stage: Stage, api: FaultyMachines) -> None:
    old = stage.leading
    stage.lead()
    stage.leading = old
    api.apply("a", SPEC)
    with pytest.raises(LeaseLostError):
        stage.settle()
    assert stage.every() == []


class _Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("calls", range(12))
def test_killed_at_any_call_the_successor_ends_where_it_would_have_ended(
    stage: Stage, api: FaultyMachines, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls to Kubernetes and to the nodes are counted; the process dies before, or after, one of them."""
    api.apply("a", SPEC, annotations={"ferroscope/inspect": "", "ferroscope.io/apply": "1"})
    left = [calls // 2]
    kube_call, node_call = stage.kube._call, stage.nodes._call

    def counted(call: Any) -> Any:
        def one(method: str, *given: Any, **more: Any) -> Any:
            if method.startswith("GET"):
                return call(method, *given, **more)
            left[0] -= 1
            if left[0] == -1 and calls % 2 == 0:
                raise _Killed
            found = call(method, *given, **more)
            if left[0] == -1:
                raise _Killed
            return found

        return one

    monkeypatch.setattr(stage.kube, "_call", counted(kube_call))
    monkeypatch.setattr(stage.nodes, "_call", counted(node_call))
    try:
        stage.settle()
    except _Killed:
        stage.restart()
        stage.lead()
        stage.settle()
    (node,) = stage.every()
    assert (stage.macs(), node.state) == ([MAC], State.STARTING)
    started = stage.backend.store.read(lambda tx: tx.inspections.list(Query()))
    assert len(started) == 1
    assert api.condition("a", "InStep") == ("True", "InStep")
    machine = api.machine("a")
    assert machine is not None
    assert machine["metadata"]["annotations"] == {"ferroscope.io/apply": "1"}
    assert "inspect" not in machine["status"]
    api.delete("a")
    stage.change("a", state=State.NONE)
    stage.settle()
    assert (stage.every(), api.machine("a")) == ([], None)


def test_an_outage_of_the_api_server_loses_nothing(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", SPEC)
    for status in (500, 429, 503):
        api.fail("/machines/a/status", answering(status))
    assert "no" in stage.step()
    stage.settle()
    assert api.condition("a", "Enrolled") == ("True", "Enrolled")
    assert len(stage.every()) == 1
