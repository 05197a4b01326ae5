"""``[coordination] backend = kubernetes`` on a real API server: sessions, rights, outages, and their messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.coordination_options import CoordinationSettings, problem
from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.contracts.store import CoordinationRefusedError, CoordinationUnavailableError
from ferroscope.contrib.kubernetes.liveness import KubernetesService
from ferroscope.doctor import host
from ferroscope.liveness.service import build_coordination_service, build_party_watch
from tests.support.kubernetes import Cluster
from tests.support.processes import until

SESSION = 3
RIGHTS = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create", "delete", "list", "patch"]}
]


def settings(kubeconfig: Path | str, **more: Any) -> CoordinationSettings:
    return CoordinationSettings(backend="kubernetes", kubeconfig=str(kubeconfig), session_timeout=SESSION, **more)


@pytest.fixture
def namespace(api_server: Cluster, request: pytest.FixtureRequest) -> str:
    """Give a new namespace."""
    name = request.node.name.replace("_", "-")[:60].rstrip("-")
    api_server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return str(name)


@pytest.fixture
def allowed(api_server: Cluster, namespace: str) -> CoordinationSettings:
    """Give the settings of a service account with the documented rights, and no others."""
    token = api_server.account("ferroscope", RIGHTS, namespace=namespace)
    return settings(api_server.write_kubeconfig(f"{namespace}.kubeconfig", token, namespace=namespace))


@pytest.fixture
def members(allowed: CoordinationSettings) -> Iterator[dict[str, KubernetesService]]:
    """Give two members that have joined."""
    both = {name: KubernetesService(allowed, name, threading.Event()) for name in ("a", "b")}
    for service in both.values():
        service.join()
    yield both
    for service in both.values():
        service.leave()


def together(members: dict[str, KubernetesService]) -> bool:
    """Whether both see both; each looks once."""
    seen = [service.alive() for service in members.values()]
    for service in members.values():
        service.wait(SESSION / 6)
    return all(found == {"a", "b"} for found in seen)


def test_members_see_each_other_until_one_is_silent_leaves_or_is_deleted(
    members: dict[str, KubernetesService], api_server: Cluster, namespace: str
) -> None:
    a, b = members.values()
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    assert until(lambda: together(members))
    # Silent: its session ends for the other one, and then for itself.
    assert until(lambda: a.alive() == {"a"})
    assert until(lambda: "b" not in b.alive())
    b.join()
    assert until(lambda: together(members))
    # It leaves: at once.
    b.leave()
    assert a.alive() == {"a"}
    assert len(api_server.call("GET", path)["items"]) == 1
    # Somebody deletes a session: its member learns that it has none.
    b.join()
    assert until(lambda: together(members))
    for lease in api_server.call("GET", path)["items"]:
        if lease["spec"]["holderIdentity"] == "b":
            api_server.call("DELETE", f"{path}/{lease['metadata']['name']}")
    assert a.alive() == {"a"}
    assert until(lambda: "b" not in b.alive())


def test_clocks_are_not_compared_and_what_dead_processes_left_is_no_member(
    members: dict[str, KubernetesService], api_server: Cluster, namespace: str
) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    labels = {"app.kubernetes.io/name": "ferroscope", "app.kubernetes.io/component": "member"}

    def lease(name: str, renewed: str) -> dict[str, Any]:
        spec = {"holderIdentity": name, "leaseDurationSeconds": SESSION, "renewTime": renewed}
        about = {"name": name, "namespace": namespace, "labels": labels}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about, "spec": spec}

    # A clock that is years ahead: what it wrote last would be valid for years, if clocks were compared.
    api_server.call("POST", path, lease("dead", "2090-01-01T00:00:00.000000Z"))
    assert until(lambda: together(members))
    assert members["a"].alive() == {"a", "b"}
    # A clock that is years behind, whose process is alive.
    changed = lease("dead", "1990-01-01T00:00:00.000000Z")
    api_server.call("PATCH", f"{path}/dead", changed, content="application/merge-patch+json")
    assert "dead" in members["a"].alive()


def test_a_missing_right_is_named_with_the_rule_that_grants_it(api_server: Cluster, namespace: str) -> None:
    token = api_server.account("powerless", (), namespace=namespace)
    refused = settings(api_server.write_kubeconfig("powerless.kubeconfig", token, namespace=namespace))
    with pytest.raises(SetupError) as said:
        build_party_watch(Settings(coordination=refused), None, member="me", clock=None, stop=threading.Event())  # type: ignore[arg-type]
    assert "create leases" in said.value.summary
    assert "verbs [create, delete, list, patch]" in said.value.summary
    (finding,) = host._coordination(Settings(coordination=refused))
    assert (finding.code, finding.verdict) == ("coordination", "wrong")
    for shown in (str(said.value), repr(finding)):
        assert token not in shown


def test_a_wrong_token_and_a_missing_namespace_stop_the_start(api_server: Cluster) -> None:
    stranger = settings(api_server.write_kubeconfig("stranger.kubeconfig", "wrong"))
    lost = settings(api_server.kubeconfig, namespace="no-such-namespace")
    for wrong, said in ((stranger, "401"), (lost, "no-such-namespace does not exist")):
        service = build_coordination_service(Settings(coordination=wrong), "me", threading.Event())
        assert service is not None
        with pytest.raises(CoordinationRefusedError, match=said):
            service.join()
        service.leave()


def test_a_pod_uses_its_service_account_and_a_rotated_token(
    api_server: Cluster, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("expired")
    (tmp_path / "namespace").write_text(namespace)
    (tmp_path / "ca.crt").write_bytes(api_server.ca.read_bytes())
    monkeypatch.setattr("lightkube.config.kubeconfig.SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(api_server.port))
    service = KubernetesService(settings(""), "me", threading.Event())
    with pytest.raises(CoordinationRefusedError):
        service.join()
    (tmp_path / "token").write_text(api_server.account("ferroscope", RIGHTS, namespace=namespace))
    service.join()
    assert service.alive() == {"me"}
    service.leave()


def test_an_invalid_or_missing_configuration_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert "no file" in problem(settings(tmp_path / "none"))
    for text in ("", "{", "[]", "a: b", "current-context: x\ncontexts: []\nclusters: []\nusers: []"):
        (tmp_path / "config").write_text(text)
        with pytest.raises(CoordinationRefusedError) as said:
            KubernetesService(settings(tmp_path / "config"), "me", threading.Event())
        assert "\n" not in str(said.value)
    with pytest.raises(SetupError, match="KUBERNETES_SERVICE_HOST"):
        build_coordination_service(Settings(coordination=settings("")), "me", threading.Event())


def test_an_api_server_that_is_frozen_dead_or_forgetful_is_unavailable_and_then_used_again(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        service = KubernetesService(settings(cluster.kubeconfig), "me", threading.Event())
        service.join()
        for harm, mend in (
            (cluster.api_server.freeze, cluster.api_server.thaw),
            (cluster.etcd.freeze, cluster.etcd.thaw),
            (cluster.api_server.kill, cluster.api_server.start),
        ):
            harm()
            with pytest.raises(CoordinationUnavailableError):
                service.alive()
            mend()
            assert until(lambda: _joins(service))
            assert service.alive() == {"me"}
        service.leave()


def _joins(service: KubernetesService) -> bool:
    try:
        service.join()
    except CoordinationUnavailableError:
        return False
    return True
