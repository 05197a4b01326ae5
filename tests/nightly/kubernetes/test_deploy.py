"""deploy/kubernetes on a real control plane: files are accepted, pods run, accounts have the rights they need."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import ferroscope
from ferroscope.config.coordination_options import CoordinationSettings
from ferroscope.contrib.kubernetes.failover.client import FORCING_RIGHTS, RIGHTS, Right
from ferroscope.contrib.kubernetes.liveness import RULE, KubernetesService
from tests.support.kubernetes import Cluster
from tests.support.manifests import as_served, kustomized, pods

OVERLAYS = ("overlays/laptop", "overlays/postgresql", "overlays/cloud", "failover", "pxe-filter")
SECRETS = ("ferroscope-database", "ferroscope-users")
NAMESPACES = ("ferroscope", "ferroscope-boot")


@pytest.fixture
def namespaces(api_server: Cluster) -> Cluster:
    for name in NAMESPACES:
        api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return api_server


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_api_server_accepts_every_object(namespaces: Cluster, overlay: str) -> None:
    objects = as_served(kustomized(overlay))
    listed = yaml.safe_dump_all(objects)
    said = namespaces.kubectl("apply", "--dry-run=server", "-f", "-", given=listed)
    assert said.count("(server dry run)") == len(objects)
    # All images are those that the kustomization sets, and no pod asks for a volume that nothing makes.
    for pod in pods(objects):
        assert {one["image"] for one in pod["containers"]} == {f"localhost/ferroscope:{ferroscope.__version__}"}
        made = {one["metadata"]["name"] for one in objects if one["kind"] in ("ConfigMap", "PersistentVolumeClaim")}
        wanted = {one["configMap"]["name"] for one in pod["volumes"] if "configMap" in one}
        assert wanted <= made
        given = {one["secret"]["secretName"] for one in pod["volumes"] if "secret" in one}
        assert given <= set(SECRETS)


@pytest.fixture
def accounts(namespaces: Cluster) -> Cluster:
    """Give the cluster with the accounts and rights of a site."""
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    objects = kustomized("overlays/postgresql", "failover")
    namespaces.apply(*(one for one in objects if one["kind"] in kinds))
    return namespaces


def _may(cluster: Cluster, account: str, right: Right) -> bool:
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    scope = ("--namespace", right.namespace) if right.namespace else ("--all-namespaces",)
    try:
        said = cluster.kubectl(
            "auth", "can-i", right.verb, resource, *scope, "--as", f"system:serviceaccount:ferroscope:{account}"
        )
    except RuntimeError:  # exit code 1
        return False
    return said.strip() == "yes"


def test_the_controller_has_the_rights_that_it_uses_and_no_others(accounts: Cluster) -> None:
    for right in RIGHTS + FORCING_RIGHTS:
        assert _may(accounts, "ferroscope-failover", right), right
    for right in (
        Right("list", "", "secrets"),
        Right("create", "", "pods"),
        Right("delete", "", "nodes"),
        Right("get", "", "configmaps"),
        Right("create", "", "events", "kube-system"),
        Right("list", "coordination.k8s.io", "leases", "ferroscope"),
        Right("patch", "coordination.k8s.io", "leases", "kube-node-lease"),
        Right("create", "", "pods/eviction"),
    ):
        assert not _may(accounts, "ferroscope-failover", right), right
    granted = set()
    for namespace in ("", "kube-node-lease", "default"):
        granted |= _rules(accounts, "ferroscope-failover", namespace)
    assert granted == {(one.verb, one.group, one.resource) for one in RIGHTS + FORCING_RIGHTS}


def test_the_plan_can_be_made_with_the_rights_of_the_controller(accounts: Cluster, tmp_path: Path) -> None:
    def plan(account: str) -> subprocess.CompletedProcess[str]:
        kubeconfig = accounts.account_kubeconfig(account, "ferroscope")
        (tmp_path / "f.conf").write_text(
            f"[database]\nconnection = sqlite:///{tmp_path}/f.db\n[failover]\nkubeconfig = {kubeconfig}\n"
        )
        command = [sys.executable, "-m", "ferroscope"]
        subprocess.run([*command, "db", "upgrade", "-c", tmp_path / "f.conf"], check=True)
        planned = [*command, "failover", "plan", "-c", tmp_path / "f.conf"]
        return subprocess.run(planned, capture_output=True, text=True, check=False)

    done = plan("ferroscope-failover")
    assert done.returncode == 0, done.stdout + done.stderr
    refused = plan("ferroscope-worker")
    assert refused.returncode != 0
    assert "volumeattachments" in refused.stderr


@pytest.fixture
def session(accounts: Cluster) -> Iterator[KubernetesService]:
    """Give a session of a worker, with the rights of its account."""
    kubeconfig = accounts.account_kubeconfig("ferroscope-worker", "ferroscope")
    settings = CoordinationSettings(backend="kubernetes", kubeconfig=str(kubeconfig), session_timeout=3)
    service = KubernetesService(settings, "worker", threading.Event())
    yield service
    service.leave()


def test_a_worker_can_use_lease_objects_and_nothing_else(session: KubernetesService, accounts: Cluster) -> None:
    session.join()
    assert session.alive() == {"worker"}
    path = "/apis/coordination.k8s.io/v1/namespaces/ferroscope/leases"
    assert len(accounts.call("GET", path)["items"]) == 1
    session.leave()
    assert accounts.call("GET", path)["items"] == []
    granted = _rules(accounts, "ferroscope-coordination", "ferroscope")
    assert {verb for verb, _, _ in granted} == set(RULE.partition("verbs [")[2].rstrip("]").split(", "))
    assert not _may(accounts, "ferroscope-worker", Right("list", "", "pods", "ferroscope"))
    assert not _may(accounts, "ferroscope-worker", Right("create", "coordination.k8s.io", "leases", "default"))
    assert not _may(accounts, "ferroscope-api", Right("list", "coordination.k8s.io", "leases", "ferroscope"))


def _rules(cluster: Cluster, role: str, namespace: str) -> set[tuple[str, str, str]]:
    """Return each right that a role grants, as verb, group and resource; without namespace, a ClusterRole."""
    kind = f"namespaces/{namespace}/roles" if namespace else "clusterroles"
    rules = cluster.call("GET", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{role}")["rules"]
    return {
        (verb, group, resource)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
