"""Nothing is cut whose pods cannot go anywhere: because of their size, or of pods beside which they must (not) run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from ferroscope.contrib.kubernetes.failover import client
from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from ferroscope.contrib.kubernetes.failover.placement import MAX_QUERIES, PodQuery, queries_of
from ferroscope.contrib.kubernetes.failover.pods import Pod
from ferroscope.contrib.kubernetes.failover.scheduling import LabelSelector, amount_of
from ferroscope.contrib.kubernetes.failover.terms import PowerOff
from tests.fast.contrib.kubernetes.failover.build import Case, node, pod
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import pod_document
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.rows import each

_HOST = "kubernetes.io/hostname"
_ZONE = "topology.kubernetes.io/zone"
_DB = {"matchLabels": {"app": "db"}}
_QUERY = PodQuery("shop", "app in (db)")


def _needing(**requests: str) -> Pod:
    named = {name.replace("_", "/"): amount for name, amount in requests.items()}
    return pod(containers=[{"resources": {"limits": named}}])


@each(
    ("needed", "allocatable", "goes"),
    [
        ({"nvidia.com_gpu": "8"}, {"cpu": "64"}, False),
        ({"nvidia.com_gpu": "8"}, {"nvidia.com/gpu": "4"}, False),
        ({"nvidia.com_gpu": "8"}, {"nvidia.com/gpu": "8"}, True),
        ({"hugepages-1Gi": "4Gi"}, {"hugepages-1Gi": "2Gi"}, False),
        ({"memory": "512Gi"}, {"memory": "263856380Ki"}, False),
        ({"cpu": "1500m"}, {"cpu": "2"}, True),
        ({"nvidia.com_gpu": "8"}, None, True),  # the node does not say what it has
    ],
)
def test_a_machine_is_kept_on_if_no_other_node_is_large_enough(
    needed: dict[str, str], allocatable: dict[str, str] | None, goes: bool
) -> None:
    case = Case()
    case.pods = [_needing(**needed)]
    case.others = [node(name, "True", allocatable=allocatable) for name in ("n2", "n3", "n4")]
    case.step()
    decision = case.step(20.0)
    assert (decision.effects == (PowerOff(),), decision.reason == "nowhere-to-go") == (goes, not goes)


def test_containers_count_together_and_init_containers_by_the_largest() -> None:
    def container(amount: str) -> dict[str, Any]:
        return {"resources": {"requests": {"example.com/fpga": amount}}}

    one = pod(containers=[container("1"), container("2")], initContainers=[container("2"), container("5"), {}])
    assert one.requests == {"example.com/fpga": 5.0}
    assert pod(containers=[container("1"), container("2")]).requests == {"example.com/fpga": 3.0}


@each(
    ("text", "amount"),
    [("1", 1.0), ("250m", 0.25), ("2k", 2000.0), ("1Ki", 1024.0), ("1.5Gi", 1.5 * 2**30), ("1e3", 1000.0), ("x", 0.0),
     ("1E", 1e18), (3, 3.0)],
)  # fmt: skip
def test_a_quantity_is_read_as_kubernetes_writes_it(text: str, amount: float) -> None:
    assert amount_of(text) == amount


def _apart(key: str = _HOST, *, together: bool = False, selector: Any = _DB, **term: Any) -> Pod:
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector, **term}]}
    affinity = {"podAffinity" if together else "podAntiAffinity": rule}
    return pod("db-0", labels={"app": "db" if not together else "web"}, affinity=affinity)


def _on(name: str, **more: Any) -> Pod:
    found = pod(f"db-{name}", labels={"app": "db"}, **more)
    spec = msgspec.structs.replace(found.spec, node_name=name)
    return msgspec.structs.replace(found, spec=spec)


@each(
    ("on", "goes"),
    [
        (["n2", "n3", "n4"], False),
        (["n2", "n3"], True),
        (["n1"], True),  # its own node does not count
        (None, True),  # too many to know
    ],
)
def test_a_replica_that_must_be_apart_from_the_others_needs_a_node_without_one(on: Any, goes: bool) -> None:
    case = Case()
    case.pods = [_apart()]
    case.neighbors = {_QUERY: None if on is None else [_on(name) for name in on]}
    case.step()
    decision = case.step(20.0)
    assert (decision.effects == (PowerOff(),), decision.reason == "nowhere-to-go") == (goes, not goes)


@each("ended", [{"phase": "Succeeded"}, {"terminating": True}])
def test_a_replica_that_has_ended_is_in_nobodys_way(ended: dict[str, Any]) -> None:
    case = Case()
    case.pods = [_apart()]
    case.neighbors = {_QUERY: [_on("n2", **ended), _on("n3"), _on("n4")]}
    case.commanded()


@each(("zones", "goes"), [(("a", "a", "b"), True), (("a", "a", "a"), False)])
def test_zones_count_as_hosts_do(zones: tuple[str, ...], goes: bool) -> None:
    case = Case()
    case.others = [node(f"n{number}", "True", labels={_ZONE: zone}) for number, zone in enumerate(zones, 2)]
    case.pods = [_apart(_ZONE)]
    case.neighbors = {_QUERY: [_on("n2")]}
    case.step()
    assert (case.step(20.0).effects == (PowerOff(),)) is goes


@each(
    ("on", "here", "goes"),
    [
        (["n2"], None, True),
        ([], None, False),  # what it needs is nowhere
        ([], {}, True),  # what it needs moves, too
        ([], {"no": "node"}, False),  # what it needs is here, and stays
        (["n5"], None, False),  # what it needs is on a node that takes no pods
    ],
)
def test_a_pod_that_must_be_beside_another_needs_one_that_is_there(
    on: list[str], here: dict[str, str] | None, goes: bool
) -> None:
    case = Case()
    case.others = [*case.others, node("n5", "True", cordoned=True)]
    follower = _apart(together=True)
    case.pods = [follower, *([] if here is None else [pod("db-9", labels={"app": "db"}, nodeSelector=here)])]
    case.neighbors = {_QUERY: [_on(name) for name in on]}
    case.step()
    assert (case.step(20.0).effects == (PowerOff(),)) is goes


def test_pods_of_namespaces_that_are_selected_by_labels_are_not_known() -> None:
    case = Case()
    case.pods = [_apart(namespaceSelector={"matchLabels": {"team": "a"}})]
    assert queries_of(case.pods) == []
    case.commanded()


def test_what_is_asked_for_is_named_once_and_is_bounded() -> None:
    expressions = [
        {"key": "a", "operator": "NotIn", "values": ["x", "y"]},
        {"key": "b", "operator": "Exists"},
        {"key": "c", "operator": "DoesNotExist"},
    ]
    everywhere = _apart(selector={"matchExpressions": expressions}, namespaceSelector={})
    assert queries_of([everywhere, everywhere]) == [PodQuery("", "a notin (x,y),b,!c")]
    assert queries_of([_apart(namespaces=["b", "a"])]) == [PodQuery("a", "app in (db)"), PodQuery("b", "app in (db)")]
    many = [_apart(namespaces=[f"n{number}"]) for number in range(MAX_QUERIES + 5)]
    assert len(queries_of(many)) == MAX_QUERIES
    assert LabelSelector().matches({})


def test_the_controller_asks_for_the_neighbors_by_label_and_not_in_each_pass(site: Site) -> None:
    site.api.objects["pods"].clear()
    site.api.objects["attachments"].clear()
    for name, where in (("db-0", "n1"), ("db-1", "n2"), ("db-2", "n3")):
        document = pod_document(name, where)
        document["metadata"]["labels"] = {"app": "db"}
        term = {"topologyKey": _HOST, "labelSelector": _DB}
        rule = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        document["spec"]["affinity"] = {"podAntiAffinity": rule}
        site.api.put("pods", document)
    for document in list(site.api.objects["nodes"].values()):
        document["metadata"]["labels"] = {_HOST: document["metadata"]["name"]}
        site.api.put("nodes", document)
    task, leading = site.task(), site.lead()
    assert "no other node could take its pod" in site.passes(task, leading, 10, every=1.0).replace("1 pod", "pod")
    asked = [path for _, path in site.api.calls if path == "/api/v1/namespaces/shop/pods"]
    assert len(asked) == 1
    assert site.power.commands == []
    del site.api.objects["pods"]["db-2"]
    site.passes(task, leading, 10)
    assert site.power.commands[:1] == [False]


def test_more_neighbors_than_can_be_looked_at_are_unknown(
    api: FaultyKubernetes, kube: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        document = pod_document(f"db-{number}")
        document["metadata"]["labels"] = {"app": "db"}
        api.put("pods", document)
    monkeypatch.setattr(client, "MAX_NEIGHBORS", 3)
    assert len(kube.pods_like("shop", "app in (db)") or ()) == 3
    assert kube.pods_like("", "app notin (db)") == []
    assert kube.pods_like("other", "app") == []
    monkeypatch.setattr(client, "MAX_NEIGHBORS", 2)
    assert kube.pods_like("shop", "app in (db)") is None
