"""What deploy/kubernetes promises, as far as it can be read: restricted pods, time to end, tolerations, options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import ferroscope
from ferroscope.config.load import load, unknown_options
from ferroscope.contrib.kubernetes.failover.client import FORCING_RIGHTS, RIGHTS, Right
from tests import ROOT
from tests.support.rows import each

DEPLOY = ROOT / "deploy/kubernetes"
CONFIGURATIONS = sorted(DEPLOY.rglob("ferroscope.conf"))
# How much longer a pod lives than its role may take to end.
MARGIN = 10
# In mode label, see deploy/kubernetes/failover/rights.yaml.
EVICTION = Right("create", "", "pods/eviction")
PATCHES = {"api.yaml": "cloud", "worker-leases.yaml": "postgresql"}


def _objects() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and content of each whole object, without patches."""
    for file in sorted(DEPLOY.rglob("*.yaml")):
        if file.name == "kustomization.yaml" or PATCHES.get(file.name) == file.parent.name:
            continue
        for found in yaml.load_all(file.read_text(), Loader=yaml.CSafeLoader):
            yield f"{file.parent.name}/{found['kind']}/{found['metadata']['name']}", found


_NAMED_OBJECTS = list(_objects())
# Roles of two namespaces have the same name.
ROLES = [(name, role) for name, role in _NAMED_OBJECTS if role["kind"].endswith("Role")]
OBJECTS = dict(_NAMED_OBJECTS)
PODS = {name: one["spec"]["template"]["spec"] for name, one in OBJECTS.items() if "template" in one.get("spec", {})}
DEPLOYMENTS = {name: one for name, one in OBJECTS.items() if one["kind"] == "Deployment"}
RESTRICTED = {name: pod for name, pod in PODS.items() if not name.startswith("pxe-filter/")}
NAMES = {name.rpartition("/")[2] for name in PODS}


def test_every_role_has_a_pod() -> None:
    assert {f"ferroscope-{role}" for role in ("api", "worker", "failover", "pxe-filter", "db-upgrade")} < NAMES


@each("name", RESTRICTED)
def test_a_pod_fits_into_a_restricted_namespace(name: str) -> None:
    """As https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted says."""
    pod = RESTRICTED[name]
    assert not any(pod.get(host) for host in ("hostNetwork", "hostPID", "hostIPC"))
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
    assert kinds <= {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
    for container in pod["containers"]:
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}


@each("name", PODS)
def test_a_pod_has_a_read_only_root_a_memory_limit_and_no_token_that_it_does_not_need(name: str) -> None:
    pod = PODS[name]
    for container in pod["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["resources"]["limits"]["memory"]
        assert {"name": "temporary", "mountPath": "/tmp"} in container["volumeMounts"]
    assert pod["automountServiceAccountToken"] is name.endswith("/ferroscope-failover")


def test_the_pxe_filter_has_three_capabilities_on_the_network_of_its_host() -> None:
    (pod,) = [pod for name, pod in PODS.items() if name not in RESTRICTED]
    assert pod["hostNetwork"] is True
    assert "hostPID" not in pod
    (container,) = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["NET_ADMIN", "NET_RAW", "KILL"]}
    assert "privileged" not in container["securityContext"]


@each("name", PODS)
def test_what_has_a_startup_probe_has_a_readiness_probe(name: str) -> None:
    """Kubernetes 1.20 would look up to 90 s later whether a pod with the first alone is ready."""
    for container in PODS[name]["containers"]:
        if "startupProbe" in container:
            assert container["readinessProbe"]["periodSeconds"] == 2


@each("name", [name for name in PODS if "/Job/" not in name])
def test_a_pod_has_more_time_to_end_than_its_role_needs(name: str) -> None:
    settings = load([str(DEPLOY / "base/ferroscope.conf")])
    role = name.rpartition("-")[2]
    needed = settings.worker.graceful_timeout * (2 if role == "ferroscope" else 1)
    needed += settings.api.drain_delay if role == "api" else 0
    assert PODS[name]["terminationGracePeriodSeconds"] >= needed + MARGIN


@each("name", [name for name, one in DEPLOYMENTS.items() if one["spec"]["replicas"] > 1])
def test_replicas_avoid_each_others_nodes_leave_a_dead_one_in_seconds_and_are_not_drained_at_once(name: str) -> None:
    pod, labels = PODS[name], DEPLOYMENTS[name]["spec"]["template"]["metadata"]["labels"]
    tolerated = {one["key"].rpartition("/")[2]: one["tolerationSeconds"] for one in pod["tolerations"]}
    assert tolerated == {"not-ready": 5, "unreachable": 5}
    (kind,) = pod["affinity"]["podAntiAffinity"].items()
    required = kind[0].startswith("required")
    term = kind[1][0] if required else kind[1][0]["podAffinityTerm"]
    assert (term["labelSelector"]["matchLabels"], term["topologyKey"]) == (labels, "kubernetes.io/hostname")
    # Two controllers on one node would not survive its death.
    assert required is name.endswith("failover")
    budgets = [one for one in OBJECTS.values() if one["kind"] == "PodDisruptionBudget"]
    assert [one["spec"]["maxUnavailable"] for one in budgets if one["spec"]["selector"]["matchLabels"] == labels] == [1]


@each("file", CONFIGURATIONS)
def test_a_configuration_is_valid_and_has_no_password(file: Path) -> None:
    load([str(file)])
    assert unknown_options([str(file)]) == []
    assert "password =" not in file.read_text()


def test_everything_is_of_this_release() -> None:
    chart = yaml.safe_load((DEPLOY.parent / "helm/ferroscope/Chart.yaml").read_text())
    assert chart["appVersion"] == ferroscope.__version__
    # Helm wants a hyphen before what makes it a candidate.
    assert chart["version"] == re.sub(r"(?<=\d)(?=[a-z])", "-", ferroscope.__version__)
    kustomizations = [yaml.safe_load(file.read_text()) for file in DEPLOY.rglob("kustomization.yaml")]
    images = [image for one in kustomizations for image in one.get("images", ())]
    assert {image["newTag"] for image in images} == {ferroscope.__version__}


def test_monitors_select_what_is_there() -> None:
    monitored = set()
    for monitor in (one for one in OBJECTS.values() if one["kind"].endswith("Monitor")):
        selector = monitor["spec"]["selector"]
        wanted = {key: {value} for key, value in selector["matchLabels"].items()}
        wanted |= {
            one["key"]: set(one["values"]) for one in selector.get("matchExpressions", ()) if one["operator"] == "In"
        }
        ports = {one["port"] for key in ("endpoints", "podMetricsEndpoints") for one in monitor["spec"].get(key, ())}
        for deployment in DEPLOYMENTS.values():
            labels = deployment["metadata"]["labels"]
            if all(labels.get(key) in values for key, values in wanted.items()):
                container = deployment["spec"]["template"]["spec"]["containers"][0]
                assert ports <= {port["name"] for port in container["ports"]}
                monitored.add(labels["app.kubernetes.io/component"])
    assert monitored >= {"api", "worker", "failover"}


def test_the_failed_node_controller_has_the_rights_that_it_needs_and_no_others() -> None:
    granted = set()
    for name in ("ClusterRole/ferroscope-failover", "Role/ferroscope-failover"):
        for one in (found for path, found in ROLES if path == f"failover/{name}"):
            for rule in one["rules"]:
                granted |= {
                    (verb, group, resource)
                    for verb in rule["verbs"]
                    for group in rule["apiGroups"]
                    for resource in rule["resources"]
                }
    assert granted == {(one.verb, one.group, one.resource) for one in RIGHTS + FORCING_RIGHTS}


def test_the_policies_have_a_word_on_each_change_that_the_controller_may_make() -> None:
    """The creation of events harms nobody."""
    operations = {"patch": "UPDATE", "delete": "DELETE", "create": "CREATE"}
    changes = {(operations[one.verb], one.group, one.resource) for one in (*FORCING_RIGHTS, EVICTION)}
    policies = [one for one in OBJECTS.values() if one["kind"] == "ValidatingAdmissionPolicy"]
    covered = {
        (operation, group, resource)
        for policy in policies
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for operation in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert changes - covered == {("CREATE", "", "events")}
    bound = {one["spec"]["policyName"] for one in OBJECTS.values() if one["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert bound == {policy["metadata"]["name"] for policy in policies}
    (condition,) = {yaml.safe_dump(policy["spec"]["matchConditions"]) for policy in policies}
    assert "system:serviceaccount:ferroscope:ferroscope-failover" in condition


def test_the_controller_needs_no_other_directory() -> None:
    """It has its namespace, reaches names and database, and knows the drivers that api and workers know."""
    own = {name.partition("/")[2]: one for name, one in OBJECTS.items() if name.startswith("failover/")}
    base = {name.partition("/")[2]: one for name, one in OBJECTS.items() if name.startswith("base/")}
    assert own["Namespace/ferroscope"] == base["Namespace/ferroscope"]
    needed = base["NetworkPolicy/ferroscope-database"]["spec"]["egress"]
    reached = [port for rule in own["NetworkPolicy/ferroscope-failover"]["spec"]["egress"] for port in rule["ports"]]
    assert [port for rule in needed for port in rule["ports"] if port not in reached] == []
    files = [DEPLOY / place / "ferroscope.conf" for place in ("base", "overlays/cloud", "failover")]
    drivers = [re.findall(r"^\[drivers\]\n(.+)\n", file.read_text(), re.MULTILINE) for file in files]
    assert drivers == [["enabled = redfish,ipmi"]] * 3


def test_two_controllers_prefer_different_zones() -> None:
    name = "failover/Deployment/ferroscope-failover"
    labels = DEPLOYMENTS[name]["spec"]["template"]["metadata"]["labels"]
    (zones,) = PODS[name]["topologySpreadConstraints"]
    # Hard, it would leave one out where nodes have no zone, or one zone is away.
    assert (zones["topologyKey"], zones["whenUnsatisfiable"]) == ("topology.kubernetes.io/zone", "ScheduleAnyway")
    assert zones["labelSelector"]["matchLabels"] == labels


def test_what_repairs_the_cluster_is_not_preempted_first() -> None:
    values = yaml.safe_load((DEPLOY.parent / "helm/ferroscope/values.yaml").read_text())
    given = {
        PODS["failover/Deployment/ferroscope-failover"]["priorityClassName"],
        values["failover"]["priorityClassName"],
    }
    assert given == {"system-cluster-critical"}
