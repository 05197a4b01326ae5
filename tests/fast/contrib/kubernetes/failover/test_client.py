"""Faults of the protocol: what the Kubernetes API may answer once in a year, from a small server that does it now."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.config.errors import SetupError
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.failover.node_watch import NodeWatch
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.fast.db.test_wakeup_outage import Tries
from tests.support.faulty_kubernetes import FaultyKubernetes, answering, half, hanging, nonsense


@pytest.fixture
def api() -> Iterator[FaultyKubernetes]:
    with FaultyKubernetes() as found:
        found.put("nodes", node_document("n1"))
        yield found


@pytest.fixture
def settings(api: FaultyKubernetes, tmp_path: Any) -> FailoverSettings:
    return FailoverSettings(kubeconfig=str(kubeconfig(api, tmp_path)), request_timeout=1.0)


@pytest.fixture
def kube(api: FaultyKubernetes, settings: FailoverSettings) -> Iterator[Kubernetes]:
    found = role.connect(settings)
    yield found
    api.released.set()
    found.close()


def kubeconfig(api: FaultyKubernetes, directory: Any) -> Any:
    file = directory / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": api.url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(document))
    return file


def node_document(name: str, ready: str = "True", **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "reason": "x"}]
    info = {"bootID": f"boot-{name}", "systemUUID": ""}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": conditions, "nodeInfo": info}}


def pod_document(name: str, node: str = "n1") -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (answering(500), 500),
        (answering(403), 403),
        (answering(429, Retry_After="7"), 429),
        (half, 0),
        (hanging, 0),
        (nonsense, 0),
    ],
    ids=["500", "403", "429", "half", "hanging", "nonsense"],
)
def test_a_bad_answer_is_an_error_within_the_time_out(
    api: FaultyKubernetes, kube: Kubernetes, fault: Any, status: int
) -> None:
    api.fail("/nodes", fault)
    with pytest.raises(KubernetesError) as error:
        kube.nodes()
    assert error.value.status == status
    assert error.value.retry_after == (7.0 if status == 429 else 0.0)
    assert kube.nodes()[0][0].name == "n1"


def test_a_list_whose_version_is_gone_is_read_again_from_the_start(api: FaultyKubernetes, kube: Kubernetes) -> None:
    for number in range(220):
        api.put("nodes", node_document(f"m{number}"))
    api.fail("/nodes", lambda call: call._route("/api/v1/nodes"))  # the first page arrives
    api.fail("/nodes", answering(410))
    assert len(kube.nodes()[0]) == 221
    assert len(api.calls) == 5


def test_only_the_pod_that_was_read_is_deleted(api: FaultyKubernetes, kube: Kubernetes) -> None:
    api.put("pods", pod_document("db-0"))
    api.put("pods", pod_document("other", "n2"))
    (read,) = kube.pods_on("n1")
    api.put("pods", api.objects["pods"]["db-0"])
    with pytest.raises(KubernetesError) as error:
        kube.delete_pod(read)
    assert error.value.conflict
    kube.delete_pod(kube.pods_on("n1")[0])
    kube.delete_pod(read)  # it is gone already
    assert set(api.objects["pods"]) == {"other"}


def test_the_taint_is_set_beside_others_on_the_node_that_was_read(api: FaultyKubernetes, kube: Kubernetes) -> None:
    other = {"key": "gpu", "value": "a", "effect": "NoExecute", "timeAdded": "2026-11-22T10:00:00Z"}
    api.put("nodes", node_document("n2", taints=[other]))
    read = kube.node("n2")
    assert read is not None
    kube.set_out_of_service(read, present=True)
    found = kube.node("n2")
    assert found is not None
    assert found.out_of_service
    assert api.objects["nodes"]["n2"]["spec"]["taints"][0] == other
    with pytest.raises(KubernetesError) as error:
        kube.set_out_of_service(read, present=False)
    assert error.value.conflict
    kube.set_out_of_service(found, present=False)
    assert api.objects["nodes"]["n2"]["spec"]["taints"] == [other]


def test_a_pod_is_evicted_if_the_disruption_budget_allows_it(api: FaultyKubernetes, kube: Kubernetes) -> None:
    for name in ("db-0", "db-1", "db-2"):
        api.put("pods", pod_document(name))
    first, second, third = kube.pods_on("n1")
    api.budget = 2
    assert kube.evict(first)
    api.fail("/eviction", answering(400))  # an old server, which does not say its version, knows policy/v1beta1 only
    assert kube.evict(second)
    assert not kube.evict(third)
    assert set(api.objects["pods"]) == {"db-2"}
    api.budget = 2
    api.objects["pods"]["db-2"]["metadata"]["uid"] = "another"
    with pytest.raises(KubernetesError) as error:
        kube.evict(third)
    assert error.value.conflict
    del api.objects["pods"]["db-2"]
    assert kube.evict(third)


def _event(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def _row(kind: str, name: str, status: str, version: str, **annotations: str) -> bytes:
    metadata = {"name": name, "resourceVersion": version, "annotations": annotations}
    row = {"cells": [name, status, "<none>", "5d", "v1.30.0"], "object": {"metadata": metadata}}
    return _event(kind, {"kind": "Table", "metadata": {"resourceVersion": version}, "rows": [row]})


def test_a_watch_yields_changes_and_bookmarks_and_says_when_its_version_is_gone(
    api: FaultyKubernetes, kube: Kubernetes
) -> None:
    bookmark = {"kind": "Table", "metadata": {"resourceVersion": "110"}, "rows": []}
    wake = threading.Event()
    watch = NodeWatch(kube, wake, threading.Event())
    api.watch = [_row("ADDED", "n1", "Ready", "101")]
    assert watch.follow("") == "101"
    api.watch = [_row("MODIFIED", "n1", "Ready", "102"), _row("ADDED", "n2", "Ready", "103")]
    assert watch.follow("101") == "103"
    assert not wake.is_set()
    for change in (
        _row("ADDED", "n3", "NotReady", "104"),
        _row("ADDED", "n4", "Ready", "104", **{"ferroscope.io/failover-paused": "true"}),
        _row("MODIFIED", "n1", "NotReady", "105"),
        _row("MODIFIED", "n1", "NotReady", "106", **{"ferroscope.io/failover-paused": "true"}),
        _row("DELETED", "n1", "NotReady", "107"),
    ):
        api.watch = [change, _event("BOOKMARK", bookmark)]
        wake.clear()
        assert watch.follow("100") == "110"
        assert wake.is_set()
    api.watch = [_event("ERROR", {"code": 410, "message": "too old"})]
    with pytest.raises(KubernetesError) as error:
        watch.follow("110")
    assert error.value.is_version_expired
    api.watch = [b'{"type": "MODIFIED", "obj']
    with pytest.raises(KubernetesError) as error:
        watch.follow("110")
    assert error.value.status == 0


def test_a_server_that_ends_each_watch_at_once_is_not_asked_without_a_pause(
    api: FaultyKubernetes, kube: Kubernetes
) -> None:
    pauses = list[float]()

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout or 0.0)
            if len(pauses) == 3:
                self.set()
            return self.is_set()

    NodeWatch(kube, threading.Event(), Stop()).run()
    assert pauses == [1.0, 1.0, 1.0]
    assert len(api.calls) == 3


def test_the_watch_begins_again_after_a_version_that_is_gone(api: FaultyKubernetes, kube: Kubernetes) -> None:
    api.watch = [_event("ERROR", {"code": 410, "message": "too old"})]
    NodeWatch(kube, threading.Event(), Tries(4)).run()
    assert len(api.calls) == 4


@pytest.mark.parametrize(("minor", "expected"), [("20", (1, 20)), ("28+", (1, 28)), ("", (0, 0))])
def test_a_version_may_be_odd_or_missing(
    api: FaultyKubernetes, kube: Kubernetes, minor: str, expected: tuple[int, int]
) -> None:
    document = {"major": "1" if minor else "", "minor": minor, "gitVersion": ""}
    api.fail("/version", lambda call: call.answer(200, document))
    assert kube.version() == expected


def test_a_missing_right_is_named_with_the_rule_that_grants_it(
    api: FaultyKubernetes, kube: Kubernetes, settings: FailoverSettings
) -> None:
    role.check_cluster(kube, settings)
    api.denied = {("delete", "pods"), ("list", "volumeattachments")}
    with pytest.raises(SetupError) as error:
        role.check_cluster(kube, settings)
    assert error.value.summary == "Kubernetes forbids to list volumeattachments, delete pods"
    assert '{apiGroups: [""], resources: ["pods"], verbs: ["delete"]}' in error.value.advice
    assert '{apiGroups: ["storage.k8s.io"], resources: ["volumeattachments"], verbs: ["list"]}' in error.value.advice


@pytest.mark.parametrize(
    ("minor", "ahead", "said"),
    [
        ("20", 0.0, ["Kubernetes 1.20 does not act on the out-of-service taint"]),
        ("", 0.0, ["does not say its version"]),
        ("28+", 0.0, []),
        ("99", 0.0, ["Kubernetes 1.99 is newer than"]),
        ("30", 120.0, ["s ahead of this host's"]),
        ("30", -120.0, ["s behind this host's"]),
    ],
)
def test_an_odd_version_and_a_wrong_clock_are_reported_at_start(
    api: FaultyKubernetes, kube: Kubernetes, settings: FailoverSettings, minor: str, ahead: float, said: list[str]
) -> None:
    document = {"major": "1" if minor else "", "minor": minor, "gitVersion": ""}
    api.fail("/version", lambda call: call.answer(200, document))
    api.ahead = ahead
    found = role.check_cluster(kube, settings)
    assert len(found) == len(said)
    assert all(words in sentence for words, sentence in zip(said, found, strict=True))


@pytest.mark.parametrize("fault", [answering(401), hanging, answering(503)], ids=["401", "hanging", "503"])
def test_an_unusable_server_is_an_error_at_start(
    api: FaultyKubernetes, kube: Kubernetes, settings: FailoverSettings, fault: Any
) -> None:
    api.fail("/version", fault)
    with pytest.raises(SetupError):
        role.check_cluster(kube, settings)


def test_a_server_that_is_too_old_is_an_error_at_start(
    api: FaultyKubernetes, kube: Kubernetes, settings: FailoverSettings
) -> None:
    api.version = "15"
    with pytest.raises(SetupError):
        role.check_cluster(kube, settings)


@pytest.mark.parametrize("content", [None, "", "{", "clusters: []"])
def test_a_kubeconfig_that_is_none_is_an_error_at_start(tmp_path: Any, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(SetupError) as error:
        role.connect(FailoverSettings(kubeconfig=str(file)))
    assert "[failover] kubeconfig" in error.value.advice
    assert "\n" not in error.value.summary


def test_a_context_that_the_kubeconfig_does_not_have_is_named(api: FaultyKubernetes, tmp_path: Any) -> None:
    with pytest.raises(SetupError) as error:
        role.connect(FailoverSettings(kubeconfig=str(kubeconfig(api, tmp_path)), context="nobody"))
    assert "[failover] context" in error.value.advice
