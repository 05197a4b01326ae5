"""Machine objects on a real API server: schema, rights, watch, annotations, conflicts, and controllers that die."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from bench.service import executable
from ferroscope.config.options import MachinesSettings
from ferroscope.machines.client import rights
from ferroscope.runtime import machines as role
from ferroscope.runtime.system import SetupError
from tests import ROOT
from tests.support.kubernetes import Cluster, programs
from tests.support.machine_site import MachineSite
from tests.support.processes import PATIENCE, until

CRDS = ROOT / "deploy/kubernetes/crds"
OBJECTS = "/apis/ferroscope.io/v1alpha1"

# What the published schema of Metal3 has, as far as it is needed here.
HARDWARE_DATA: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "hardwaredata.metal3.io"},
    "spec": {
        "group": "metal3.io", "scope": "Namespaced",
        "names": {"kind": "HardwareData", "listKind": "HardwareDataList", "plural": "hardwaredata",
                  "singular": "hardwaredata"},
        "versions": [{"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {"hardware": {
                "type": "object", "properties": {
                    "hostname": {"type": "string"},
                    "ramMebibytes": {"type": "integer"},
                    "cpu": {"type": "object", "properties": {
                        "arch": {"type": "string"}, "model": {"type": "string"}, "count": {"type": "integer"},
                        "clockMegahertz": {"type": "number", "format": "double"},
                        "flags": {"type": "array", "items": {"type": "string"}},
                    }},
                    "nics": {"type": "array", "items": {"type": "object", "properties": {
                        "name": {"type": "string"}, "ip": {"type": "string"}, "model": {"type": "string"},
                        "mac": {"type": "string", "pattern": "[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}"},
                        "pxe": {"type": "boolean"}, "speedGbps": {"type": "integer"},
                        "vlanId": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 4094},
                    }}},
                    "storage": {"type": "array", "items": {"type": "object", "properties": {
                        "name": {"type": "string"}, "sizeBytes": {"type": "integer", "format": "int64"},
                        "rotational": {"type": "boolean"}, "type": {"type": "string", "enum": ["HDD", "SSD", "NVME"]},
                    }}},
                    "systemVendor": {"type": "object", "properties": {
                        "manufacturer": {"type": "string"}, "productName": {"type": "string"},
                        "serialNumber": {"type": "string"},
                    }},
                },
            }}}},
        }}}],
    },
}  # fmt: skip


def install(cluster: Cluster) -> None:
    """Install the custom resources, and wait until they are served."""
    cluster.apply(yaml.safe_load((CRDS / "machines.yaml").read_text()), HARDWARE_DATA)
    for path in (f"{OBJECTS}/machines", "/apis/metal3.io/v1alpha1/hardwaredata"):
        assert until(lambda path=path: _is_served(cluster, path))


def _is_served(cluster: Cluster, path: str) -> bool:
    try:
        cluster.call("GET", path)
    except requests.HTTPError:
        return False
    return True


def manifest(name: str, spec: dict[str, Any], namespace: str = "lab", **metadata: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "ferroscope.io/v1alpha1", "kind": "Machine", "metadata": about, "spec": spec}


def account(cluster: Cluster, settings: MachinesSettings, name: str = "machines", *, without: str = "") -> Path:
    """Return the kubeconfig of a service account with the declared rights, in the namespace lab."""
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]}
        for one in rights(settings)
        if f"{one.verb} {one.resource}" != without
    ]
    return cluster.write_kubeconfig(f"{name}.kubeconfig", cluster.account(name, rules, namespace="lab"))


SETTINGS = MachinesSettings(namespaces=("lab",), hardware_data=True)
OPTIONS = "namespaces = lab\nhardware_data = true\n"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give an API server of one's own, with the custom resources and a namespace."""
    directory = tmp_path / "kubernetes"
    directory.mkdir()
    with Cluster(directory) as found:
        found.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab"}})
        install(found)
        yield found


class Lab:
    """The Machines of the namespace lab."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def every(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._cluster.call("GET", f"{OBJECTS}/namespaces/lab/machines")["items"]
        return found

    def get(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._cluster.call("GET", f"{OBJECTS}/namespaces/lab/machines/{name}")
        return found

    def condition(self, name: str, kind: str) -> tuple[str, str]:
        return _condition(self.get(name), kind)

    def all_are(self, kind: str, wanted: tuple[str, str]) -> bool:
        try:
            found = self.every()
        except requests.RequestException:
            return False
        return bool(found) and {_condition(one, kind) for one in found} == {wanted}

    def events(self, name: str) -> list[str]:
        """Return the types of the Events of a Machine."""
        found = self._cluster.call("GET", "/api/v1/namespaces/lab/events")["items"]
        return [str(one["type"]) for one in found if one["involvedObject"]["name"] == name]

    def kubectl(self, *words: str) -> str:
        return self._cluster.kubectl("-n", "lab", *words)


def _condition(machine: dict[str, Any], kind: str) -> tuple[str, str]:
    found = machine.get("status", {}).get("conditions", [])
    return next(((one["status"], one["reason"]) for one in found if one["type"] == kind), ("", ""))


def test_the_schema_refuses_what_cannot_be_a_machine_and_fills_in_defaults(cluster: Cluster) -> None:
    for wrong in (
        {}, {"bmc": {}}, {"bmc": {"driver": "sim"}, "macs": ["x"]}, {"bmc": {"driver": "sim"}, "policy": "Sometimes"},
        {"bmc": {"driver": "sim"}, "uuid": "x"}, {"bmc": {"driver": "sim", "options": {"a": 1}}},
        {"bmc": {"driver": "sim"}, "macs": ["52:54:00:00:00:01"] * 2},
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"invalid|validat"):
            cluster.apply(manifest("wrong", wrong))
    cluster.apply(manifest("right", {"bmc": {"driver": "sim"}}))
    spec = Lab(cluster).get("right")["spec"]
    assert (spec["policy"], spec["onDelete"]) == ("Manage", "Delete")
    assert "STATE" in cluster.kubectl("-n", "lab", "get", "fm")


def test_apply_watch_annotate_conflict_and_delete(cluster: Cluster, tmp_path: Path) -> None:
    lab = Lab(cluster)
    with MachineSite(tmp_path, account(cluster, SETTINGS), machines=3, options=OPTIONS) as site:
        first, second, third = site.specs.items()
        log = tmp_path / "watch.log"
        with log.open("w") as out:
            command = [str(programs() / "kubectl"), "--kubeconfig", str(cluster.kubeconfig), "-n", "lab"]
            watch = subprocess.Popen([*command, "get", "machines", "-w", "--no-headers"], stdout=out)
            try:
                cluster.apply(manifest(*first), manifest(*second))
                assert until(lambda: lab.all_are("Enrolled", ("True", "Enrolled")))
                lab.kubectl("annotate", "machine", first[0], "ferroscope/inspect=")
                assert until(lambda: lab.condition(first[0], "Inspected") == ("True", "Finished"))
            finally:
                watch.terminate()
                watch.wait()
        shown = log.read_text()
        assert "enroll" in shown
        assert "inspecting" in shown
        assert "manageable" in shown
        one = lab.get(first[0])
        assert not one["metadata"]["annotations"].keys() & {"ferroscope/inspect"}
        assert one["status"]["observedGeneration"] == one["metadata"]["generation"]
        data = cluster.call("GET", f"/apis/metal3.io/v1alpha1/namespaces/lab/hardwaredata/{first[0]}")
        assert data["spec"]["hardware"]["cpu"]["count"] == one["status"]["hardware"]["cpus"]
        assert data["spec"]["hardware"]["nics"]

        # The MAC of the first one.
        cluster.apply(manifest("thief", {**third[1], "macs": first[1]["macs"]}))
        assert until(lambda: lab.condition("thief", "Enrolled") == ("False", "Conflict"))
        assert until(lambda: lab.events("thief") == ["Warning"]), "it is sent after the condition"
        lab.kubectl("delete", "machine", "thief", "--wait=true", "--timeout=60s")

        # Changed elsewhere: told, and overwritten on order only.
        node = lab.get(second[0])["status"]["nodeUUID"]
        lab.kubectl("patch", "machine", second[0], "--type=merge", "-p", '{"spec": {"resourceClass": "big"}}')
        assert until(lambda: lab.get(second[0])["status"]["applied"].get("/resource_class") == "big")
        site.patch(node, {"op": "add", "path": "/resource_class", "value": "small"})
        assert until(lambda: lab.condition(second[0], "InStep") == ("False", "ChangedElsewhere"))
        lab.kubectl("annotate", "machine", second[0], "ferroscope.io/apply=")
        assert until(lambda: lab.condition(second[0], "InStep") == ("True", "InStep"))

        # In use: it says why, and goes when it may.
        site.patch(node, {"op": "add", "path": "/instance_uuid", "value": "5f0c9c1e-7b1b-4f0e-8d35-2a7f5f0c9c1e"})
        lab.kubectl("delete", "machine", second[0], "--wait=false")
        assert until(lambda: lab.condition(second[0], "Released") == ("False", "InUse"))
        site.patch(node, {"op": "remove", "path": "/instance_uuid"})
        assert until(lambda: [one["metadata"]["name"] for one in lab.every()] == [first[0]])
        lab.kubectl("delete", "machine", first[0], "--timeout=60s")
        assert site.nodes() == []


def test_an_idle_controller_writes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    lab = Lab(cluster)
    with MachineSite(tmp_path, account(cluster, SETTINGS), machines=3, options=OPTIONS + "poll = 0.2\n") as site:
        cluster.apply(*(manifest(name, spec) for name, spec in site.specs.items()))
        assert until(lambda: lab.all_are("InStep", ("True", "InStep")))
        before = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in lab.every()}
        versions = {node["uuid"]: node["updated_at"] for node in site.nodes()}
        for _ in range(3):  # each new leader looks at everything
            site.controllers[0].stop()
            site.controllers[0].start()
            site.controllers[0].wait_ready()
            assert until(
                lambda: (
                    "3 Machines, 0 to look at, 0 writes" in requests.get(f"{site.url}/v1/status", timeout=PATIENCE).text
                )
            )
        assert {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in lab.every()} == before
        assert {node["uuid"]: node["updated_at"] for node in site.nodes()} == versions


def test_killed_controllers_and_a_restarted_api_server_lose_and_repeat_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    lab = Lab(cluster)
    with MachineSite(tmp_path, account(cluster, SETTINGS), machines=20, controllers=2, options=OPTIONS) as site:
        orders = {"annotations": {"ferroscope.io/inspect": "first"}}
        cluster.apply(*(manifest(name, spec, **orders) for name, spec in site.specs.items()))
        for number in range(6):
            assert until(lambda number=number: _supervised(site) and len(_enrolled(lab)) >= 3 * number)
            killed = site.controllers[number % 2]
            killed.kill()
            killed.start()
            if number == 2:
                cluster.api_server.kill()
                cluster.api_server.start()
            if number == 4:
                cluster.api_server.freeze()
                cluster.api_server.thaw()
        assert until(lambda: _supervised(site) and lab.all_are("Inspected", ("True", "Finished")), seconds=300)
        nodes = {node["name"]: node for node in site.nodes()}
        assert sorted(nodes) == sorted(site.specs)
        for node in nodes.values():
            found = requests.get(f"{site.url}/v1/nodes/{node['uuid']}/inspections", timeout=PATIENCE).json()
            assert len(found["inspections"]) == 1, node["name"]


def _supervised(site: MachineSite) -> bool:
    """Start again what has ended, as the start without an API server does; return True."""
    for one in site.controllers:
        if not one.alive:
            one.start()
    return True


def _enrolled(lab: Lab) -> list[str]:
    try:
        return [one["metadata"]["name"] for one in lab.every() if _condition(one, "Enrolled")[0] == "True"]
    except requests.RequestException:
        return []


def test_each_missing_right_stops_the_start_with_its_rule(cluster: Cluster) -> None:
    settings = MachinesSettings(namespaces=("lab",), hardware_data=True, observe_namespace="lab")
    for number, right in enumerate(rights(settings)):
        what = f"{right.verb} {right.resource}"
        file = account(cluster, settings, f"without-{number}", without=what)
        wanted = MachinesSettings(
            kubeconfig=str(file), namespaces=("lab",), hardware_data=True, observe_namespace="lab"
        )
        kube = role.connect(wanted)
        try:
            with pytest.raises(SetupError) as said:
                role.check_cluster(kube, wanted)
        finally:
            kube.close()
        assert f"{what} in namespace lab" in str(said.value)
        assert right.rule in str(said.value)


def test_no_custom_resource_and_a_wrong_token_stop_the_start(api_server: Cluster, tmp_path: Path) -> None:
    crd = ("crd", "machines.ferroscope.io")  # other tests install it
    api_server.kubectl("delete", *crd, "--ignore-not-found", "--wait=true", "--timeout=60s")
    stranger = api_server.write_kubeconfig("machines-stranger.kubeconfig", "wrong")
    for file, said in ((api_server.kubeconfig, "machines.ferroscope.io"), (stranger, "credentials")):
        config = tmp_path / "ferroscope.conf"
        config.write_text(f"[database]\nconnection = sqlite:///{tmp_path}/x.db\n[machines]\nkubeconfig = {file}\n")
        done = subprocess.run(
            [executable(), "machines", "-c", str(config)], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert said in done.stderr


@pytest.mark.timeout(900)
def test_two_hundred_machines_at_once(cluster: Cluster, tmp_path: Path) -> None:
    lab = Lab(cluster)
    with MachineSite(tmp_path, account(cluster, SETTINGS), machines=200, options=OPTIONS) as site:
        orders = {"annotations": {"ferroscope/inspect": ""}}
        cluster.apply(*(manifest(name, spec, **orders) for name, spec in site.specs.items()))
        assert until(lambda: lab.all_are("Enrolled", ("True", "Enrolled")), seconds=300)
        assert until(lambda: lab.all_are("Inspected", ("True", "Finished")), seconds=600)
        assert len(site.nodes()) == 200
