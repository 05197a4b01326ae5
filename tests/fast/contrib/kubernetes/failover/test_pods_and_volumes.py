"""The pods and volumes that the controller frees, and those that it leaves: finalizers, local volumes, refusals."""

from __future__ import annotations

import time

import pytest

from ferroscope.contrib.kubernetes.failover.terms import FailoverRules
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document, pod_document
from tests.support.faulty_kubernetes import answering


def _with_claim(site: Site, name: str, *, only_on: str = "") -> None:
    pod = pod_document(name)
    pod["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{name}"}}]
    site.api.put("pods", pod)
    site.api.put("claims", {"metadata": {"name": f"data-{name}"}, "spec": {"volumeName": f"pv-{name}"}})
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [only_on]}]}]
    affinity = {"required": {"nodeSelectorTerms": terms}} if only_on else None
    site.api.put("volumes", {"metadata": {"name": f"pv-{name}"}, "spec": {"nodeAffinity": affinity}})
    source = {"persistentVolumeName": f"pv-{name}"}
    spec = {"attacher": "x", "nodeName": "n1", "source": source}
    site.api.put("attachments", {"metadata": {"name": f"va-{name}"}, "spec": spec})


def test_a_pod_with_a_local_volume_keeps_only_that_and_claims_are_read_once(site: Site) -> None:
    site.api.objects["attachments"].clear()
    _with_claim(site, "db-0")
    _with_claim(site, "local", only_on="n1")
    site.passes(site.task(), site.lead(), 20)
    assert set(site.api.objects["pods"]) == {"local"}
    assert set(site.api.objects["attachments"]) == {"va-local"}
    assert site.power.commands == [False, True]
    reads = [path for _, path in site.api.calls if "persistentvolume" in path]
    assert len(reads) == len(set(reads)) == 4


@pytest.mark.parametrize("status", [403, 500])
def test_a_deletion_that_is_refused_for_good_is_asked_for_rarely_and_does_not_hold_up_the_rest(
    site: Site, status: int
) -> None:
    site.api.put("pods", pod_document("kept"))
    site.api.objects["attachments"]["va"]["spec"]["source"] = {"persistentVolumeName": "of-db-0"}
    task, leading = site.task(rules=FailoverRules(dwell=0.0)), site.lead()
    for _ in range(900):
        site.api.fail("/pods/kept", answering(status, "the webhook says no"))
    site.passes(task, leading, 70)
    assert site.power.commands == [False, True]
    assert (set(site.api.objects["pods"]), site.api.objects["attachments"]) == ({"kept"}, {})
    assert len([call for call in site.api.calls if call == ("DELETE", "/api/v1/namespaces/shop/pods/kept")]) == 8
    (record,) = site.records()
    (text,) = [line["text"] for line in record.log if line["what"] == "gave-up"]
    assert "shop/kept" in text
    assert "the webhook says no" in text


def test_a_deletion_that_conflicts_is_repeated_for_ever(site: Site) -> None:
    task, leading = site.task(rules=FailoverRules(dwell=0.0)), site.lead()
    for _ in range(12):
        site.api.fail("/pods/db-0", answering(409))
    site.passes(task, leading, 100, every=5.5)
    assert site.api.objects["pods"] == {}


@pytest.mark.parametrize("force", [False, True])
def test_mode_label_frees_a_node_beside_one_that_failed_last_week_and_by_force_without_budgets(
    site: Site, force: bool
) -> None:
    site.api.put("nodes", node_document("n4"))
    for name in ("old", "older"):
        dead = node_document(name, "Unknown")
        dead["status"]["conditions"][0]["lastTransitionTime"] = "2026-01-02T03:04:05Z"
        site.api.put("nodes", dead)
    site.api.objects["attachments"].clear()
    _with_claim(site, "db-0")
    site.api.objects["pods"]["db-0"]["metadata"]["labels"] = {"app": "cache"}
    site.api.budget = 0
    rules = FailoverRules(mode="label", labels={"app": "cache"}, namespaces=("shop",), label_force=force)
    site.passes(site.task(rules=rules), site.lead(), 3)
    evicted = ("POST", "/api/v1/namespaces/shop/pods/db-0/eviction") in site.api.calls
    assert (set(site.api.objects["pods"]), evicted) == (set() if force else {"db-0"}, not force)
    assert set(site.api.objects["attachments"]) == (set() if force else {"va-db-0"})
    assert site.power.commands == []


def test_mode_label_sees_a_storm_in_nodes_that_have_just_failed(site: Site) -> None:
    just = node_document("n2", "Unknown")
    just["status"]["conditions"][0]["lastTransitionTime"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    site.api.put("nodes", just)
    site.api.objects["pods"]["db-0"]["metadata"]["labels"] = {"app": "cache"}
    rules = FailoverRules(mode="label", labels={"app": "cache"}, namespaces=("shop",), label_force=True)
    site.passes(site.task(rules=rules), site.lead(), 3)
    assert set(site.api.objects["pods"]) == {"db-0"}
