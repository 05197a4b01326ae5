"""What stops the start, in one sentence; and the watch under the faults of its protocol."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from ferroscope.config.options import MachinesSettings
from ferroscope.machines.client import Machines, MachineWatch, rights
from ferroscope.remote.kubernetes import KubernetesError
from ferroscope.runtime import machines as role
from ferroscope.runtime.system import SetupError
from tests import ROOT
from tests.fast.machines.conftest import BMC, Stage
from tests.support.faulty_kubernetes import answering, half, nonsense
from tests.support.faulty_machines import FaultyMachines
from tests.support.processes import until


def refusal(stage: Stage) -> SetupError:
    with pytest.raises(SetupError) as said:
        role.check_cluster(stage.kube, stage.settings.machines)
    assert "\n" not in str(said.value)
    return said.value


def test_each_missing_right_is_named_with_its_rule(stage: Stage, api: FaultyMachines) -> None:
    role.check_cluster(stage.kube, stage.settings.machines)
    for right in rights(stage.settings.machines):
        api.denied = {(right.verb, right.resource.partition("/")[0])}
        said = str(refusal(stage))
        assert f"{right.verb} {right.resource}" in said
        assert right.rule in said


@pytest.mark.parametrize("stage", [{"namespaces": ("lab",), "observe_namespace": "lab"}], indirect=True)
def test_rights_are_those_of_the_namespaces(stage: Stage, api: FaultyMachines) -> None:
    assert {right.namespace for right in rights(stage.settings.machines)} == {"lab"}
    api.denied = {("create", "machines")}
    assert "in namespace lab" in str(refusal(stage))


def test_an_old_server_and_one_without_the_custom_resource_are_refused(stage: Stage, api: FaultyMachines) -> None:
    api.served = False
    assert "machines.ferroscope.io" in str(refusal(stage))
    api.version = "15"
    assert "1.15 is too old" in str(refusal(stage))
    api.version = "20"
    api.fail("/version", answering(401))
    assert "credentials" in str(refusal(stage))


@pytest.mark.parametrize("stage", [{"hardware_data": True}], indirect=True)
def test_hardware_data_needs_the_custom_resource_of_metal3(stage: Stage, api: FaultyMachines) -> None:
    role.check_cluster(stage.kube, stage.settings.machines)
    api.fail("/apis/metal3.io/v1alpha1", answering(404))
    assert "hardwaredata.metal3.io" in str(refusal(stage))


@pytest.mark.parametrize(
    "options",
    [{"cluster": "A"}, {"namespaces": ("a", "b c")}, {"observe_namespace": "_"},
     {"namespaces": ("a",), "observe_namespace": "b"}],
)  # fmt: skip
def test_invalid_options_are_named(options: dict[str, Any]) -> None:
    assert "[machines]" in MachinesSettings(**options).problem()


def test_the_watch_tells_of_changes_and_survives_an_old_version(stage: Stage, api: FaultyMachines) -> None:
    machines = Machines()
    watch = MachineWatch(stage.kube, "", machines, stage.stop, resync=60)
    api.apply("a", {"bmc": BMC})
    watch.start()
    assert until(lambda: machines.get("lab/a") is not None)
    api.apply("b", {"bmc": BMC})
    assert until(lambda: machines.get("lab/b") is not None)
    api.delete("a")
    assert until(lambda: machines.get("lab/a") is None)
    assert watch.lists == 1
    assert sorted(machines.take_changed()) == ["lab/a", "lab/b"]


@pytest.mark.parametrize("fault", [half, nonsense, answering(500), answering(410)])
def test_faults_of_a_list_or_watch_end_in_a_new_list(stage: Stage, api: FaultyMachines, fault: Any) -> None:
    watch = MachineWatch(stage.kube, "", Machines(), stage.stop, resync=60)
    api.fail("/machines", fault)
    with pytest.raises(KubernetesError):
        watch.follow("1")
    api.oldest = 10_000
    with pytest.raises(KubernetesError) as said:
        watch.follow("1")
    assert said.value.gone


def test_our_own_writes_are_no_news(stage: Stage, api: FaultyMachines) -> None:
    api.apply("a", {"bmc": {"driver": "fake-hardware"}})
    stage.settle()
    assert stage.machines.take_changed() == []
    stage.machines.replace("", stage.kube.machines("")[0])
    assert stage.machines.take_changed() == []


def test_the_rights_that_the_manual_grants_are_those_that_are_needed() -> None:
    text = (ROOT / "docs/how-to/manage-machines-as-kubernetes-objects.md").read_text()
    granted = {
        (verb, group, resource)
        for rule in re.findall(r"\{apiGroups: [^}]*\}", text)
        for found in [yaml.safe_load(rule)]
        for group in found["apiGroups"]
        for resource in found["resources"]
        for verb in found["verbs"]
    }
    whole = MachinesSettings(observe_namespace="others", hardware_data=True)
    assert granted == {(one.verb, one.group, one.resource) for one in rights(whole)}
