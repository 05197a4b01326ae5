"""Two clusters that share one inventory: the machines of the nodes of one are never switched for nodes of the other."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferroscope.contrib.kubernetes.failover.client import Kubernetes
from ferroscope.contrib.kubernetes.failover.controller import Failover
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from tests.fast.contrib.kubernetes.failover.build import SYSTEM_UUID
from tests.fast.contrib.kubernetes.failover.site import Leading, Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document
from tests.support import examples
from tests.support.faulty_kubernetes import Direct, FaultyKubernetes
from tests.support.processes import PATIENCE

PLACEHOLDER = "03000200-0400-0500-0006-000700080009"
_SWAPPED = str(uuid.UUID(bytes=uuid.UUID(PLACEHOLDER).bytes_le))


class Other:
    """Another cluster with its own controller; its node a1 runs on the machine m1, on which n1 of ``site`` does not."""

    def __init__(self, site: Site, api: FaultyKubernetes, kube: Kubernetes) -> None:
        self._site, self.api, self._kube = site, api, kube
        for name in ("a1", "a2"):
            api.put("nodes", node_document(name))
        self.report("a1", SYSTEM_UUID)
        self.task = self.start()

    def report(self, name: str, system_uuid: str, ready: str = "True") -> None:
        node = node_document(name, ready)
        node["status"]["nodeInfo"]["systemUUID"] = system_uuid
        self.api.put("nodes", node)

    def start(self, rules: FailoverRules | None = None) -> Failover:
        site = self._site
        task = Failover(self._kube, site.power, site.store, rules or FailoverRules(), cluster="a", clock=site.clock)
        site.tasks.append(task)
        return task

    def passes(self, number: int = 1) -> None:
        lease = self._site.store.write(lambda tx: tx.leases.acquire("failover/a", "me", 6.5))
        for _ in range(number):
            self._site.clock.now += 1.0
            self.task._wake.set()
            self.task.step(Leading(lease))
        self._site.store.write(lambda tx: tx.leases.release(lease))


@pytest.fixture
def other(site: Site) -> Other:
    api = FaultyKubernetes()
    return Other(site, api, Kubernetes(Direct(api), timeout=PATIENCE))


def _mistake(site: Site, system_uuid: str = PLACEHOLDER) -> None:
    """Have n1 say by its annotation that it runs on m1, and report a UUID of its own."""
    failed = site.api.objects["nodes"]["n1"]
    failed["metadata"]["annotations"] = {"ferroscope.io/machine": "m1"}
    failed["status"]["nodeInfo"]["systemUUID"] = system_uuid
    site.api.put("nodes", failed)


@pytest.mark.parametrize("placeholder", [PLACEHOLDER, _SWAPPED])
def test_the_machine_of_a_ready_node_of_another_cluster_is_never_powered_off(
    site: Site, other: Other, placeholder: str
) -> None:
    _mistake(site, placeholder)
    other.passes()
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands == []
    assert set(site.api.objects["pods"]) == {"db-0"}
    (record,) = site.records()
    assert record.reason == "machine-shared"
    assert "node a1 of cluster a" in record.message


def test_nodes_of_two_clusters_with_one_common_uuid_belong_to_no_machine_even_with_an_annotation(
    site: Site, other: Other
) -> None:
    twin = examples.node(name="m2", internal=site.machine.internal)
    site.store.write(lambda tx: tx.nodes.add(twin))
    _mistake(site, SYSTEM_UUID)
    other.passes()
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands == []
    assert [one.reason for one in site.records()] == ["machine-shared"]


def _is_deleted(site: Site, other: Other) -> None:
    del other.api.objects["nodes"]["a1"]
    other.passes()


def _runs_elsewhere(site: Site, other: Other) -> None:
    other.report("a1", str(uuid.UUID(int=9 << 100)))
    other.passes()


def _controller_is_gone_for_days(site: Site, other: Other) -> None:
    site.clock.now += 3 * 86_400.0 + 1.0
    site.store.write(lambda tx: tx.failover_nodes.remove_old(tx.now - 3 * 86_400.0))


def _was_another_name_of_this_cluster(site: Site, other: Other) -> None:
    node = msgspec.structs.replace(
        site.store.read(lambda tx: tx.failover_nodes.named("a", ["a1"]))[0],
        uid=site.api.objects["nodes"]["n1"]["metadata"]["uid"],
    )
    site.store.write(lambda tx: tx.failover_nodes.save([node]))
    site.clock.now += 600.0


@pytest.mark.parametrize(
    "change", [_is_deleted, _runs_elsewhere, _controller_is_gone_for_days, _was_another_name_of_this_cluster]
)
def test_a_machine_that_the_other_cluster_does_not_have_any_more_is_switched(
    site: Site, other: Other, change: Callable[[Site, Other], None]
) -> None:
    _mistake(site, SYSTEM_UUID)
    other.passes()
    change(site, other)
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands[:1] == [False]


def test_a_cluster_whose_controller_does_not_run_still_counts_and_the_message_says_since_when(
    site: Site, other: Other
) -> None:
    _mistake(site)
    site.clock.now = 1_000_000_000.0
    other.passes()
    site.clock.now += 86_400.0
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands == []
    (record,) = site.records()
    assert record.reason == "machine-shared"
    assert "a1 of cluster a, whose controller has not run since 2001-09-09 01:46 UTC" in record.message


def test_a_node_that_is_not_ready_is_guarded_too_because_its_pods_may_run(site: Site, other: Other) -> None:
    other.report("a1", SYSTEM_UUID, "False")
    _mistake(site)
    other.passes()
    site.passes(site.task(), site.lead(), 10)
    assert site.power.commands == []


def test_only_nodes_that_have_changed_are_written_and_some_at_a_time(site: Site, other: Other) -> None:
    other.task = other.start(FailoverRules(mode="label"))  # it checks no machines, but other clusters must know its own
    for number in range(250):
        other.report(f"w{number:03}", str(uuid.UUID(int=(number + 9) << 100)))
    written: list[int] = []
    write = site.store.write

    def counted(work: Any) -> Any:
        done = write(work)
        if isinstance(done, list):
            written.append(len(done))
        return done

    site.store.write = counted  # type: ignore[method-assign]
    other.passes(5)
    assert (max(written), sum(written)) == (100, 252)
    written.clear()
    other.report("w007", str(uuid.UUID(int=7 << 100)))
    other.passes(3)
    assert written == [1]


def test_a_leader_without_a_list_of_nodes_forgets_none(site: Site, other: Other) -> None:
    other.passes()
    other.task = other.start()
    other.task._next_at = 1e12
    other.task._wake.clear()
    lease = site.store.write(lambda tx: tx.leases.acquire("failover/a", "me", 6.5))
    other.task.step(Leading(lease))
    assert {one.node for one in site.store.read(lambda tx: tx.failover_nodes.list("a"))} == {"a1", "a2"}
