"""Quorum groups: of the nodes with one label, one is powered off at a time, whatever became of the others' Nodes."""

from __future__ import annotations

import msgspec

from ferroscope.contrib.kubernetes.failover.guards import members_off
from ferroscope.contrib.kubernetes.failover.terms import FailoverRules, PowerOff
from ferroscope.core.remediation import Phase, Remediation
from tests.fast.contrib.kubernetes.failover.build import Case, node
from tests.fast.contrib.kubernetes.failover.site import Site
from tests.fast.contrib.kubernetes.failover.test_client import node_document
from tests.support import examples
from tests.support.rows import each

_CONTROL_PLANE = {"node-role.kubernetes.io/control-plane": ""}
_ETCD = {"example.com/etcd": ""}
_MON = {"ceph-mon": "enabled"}
_RULES = FailoverRules(quorum=("example.com/etcd:", "ceph-mon:enabled"))
_WORKERS = [node(f"w{number}", "True") for number in range(8)]


@each(
    "labels",
    [_ETCD, _MON],
)
@each("other", ["down", "silent", "dealt-with", "ready"])
def test_of_nodes_with_a_label_one_at_a_time_is_powered_off(labels: dict[str, str], other: str) -> None:
    case = Case(_RULES)
    case.node = node(labels=labels)
    case.others = [node("n2", "Unknown" if other == "down" else "True", labels=labels), node("n3", "True"), *_WORKERS]
    case.silent_nodes = frozenset({"n2"} if other == "silent" else ())
    case.switched = frozenset({"n1", *(["n2"] if other == "dealt-with" else [])})
    case.step()
    decision = case.step(20.0)
    if other == "ready":
        assert decision.effects == (PowerOff(),)
        return
    assert (decision.reason, decision.effects) == ("quorum", ())
    assert "n2" in decision.message


@each(
    "labels",
    [_MON, {"example.com/etcd": "no"}, {}],
)
def test_a_node_of_another_group_is_powered_off_meanwhile(labels: dict[str, str]) -> None:
    case = Case(_RULES)
    case.node = node(labels=labels)
    case.others = [node("n2", "Unknown", labels=_ETCD), *_WORKERS]
    case.commanded()


@each(("labels", "group"), [(_CONTROL_PLANE, "control-plane"), (_MON, "ceph-mon:enabled")])
def test_a_machine_that_we_have_left_off_counts_without_a_node(labels: dict[str, str], group: str) -> None:
    case = Case(_RULES)
    case.node = node(labels=labels)
    case.others = [node("n2", "True", labels=labels), *_WORKERS]
    case.members_off = frozenset({("gone", group)})
    case.step()
    decision = case.step(20.0)
    assert decision.effects == ()
    assert "gone" in decision.message
    assert case.record is not None
    assert case.record.groups == (group,)
    case.members_off = frozenset({("gone", "another"), ("n1", group)})
    assert case.step(1.0).effects == (PowerOff(),)


def test_members_are_off_until_their_nodes_are_ready() -> None:
    def record(name: str, **more: object) -> Remediation:
        start = Remediation(uuid=name, cluster="c", node=name, node_uid="u", groups=("g",))
        return msgspec.structs.replace(start, **more)

    records = [
        record("gone", commanded=True),
        record("left", left_off="it stays off"),
        record("replaced", left_off="its old machine stays off"),
        record("waiting"),
    ]
    nodes = {"left": node("left"), "replaced": node("replaced", "True"), "waiting": node("waiting")}
    assert members_off(records, nodes) == {("gone", "g"), ("left", "g")}


def test_the_controller_counts_an_open_record_whose_node_was_deleted(site: Site) -> None:
    """kured#137: its Node was deleted while its machine was off."""
    for name in ("n1", "n2"):
        document = site.api.objects["nodes"].get(name) or node_document(name)
        document["metadata"]["labels"] = _CONTROL_PLANE
        site.api.put("nodes", document)
    gone = Remediation(
        uuid=examples.uuid(), cluster="c", node="zz", node_uid="u", phase=Phase.RETURNING, commanded=True,
        left_off="it was left off", groups=("control-plane",),
    )  # fmt: skip
    site.store.write(lambda tx: tx.remediations.save(gone))
    now = site.store.read(lambda tx: tx.now)
    failed = Remediation(
        uuid=examples.uuid(), cluster="c", node="n1", node_uid="uid-n1", boot_id="boot-n1", renewal="t1",
        started_at=now - 500.0, failed_at=now - 400.0, not_before=now - 300.0, groups=("control-plane",),
    )  # fmt: skip
    site.store.write(lambda tx: tx.remediations.save(failed))
    task = site.task(rules=FailoverRules(silence=0.0))
    plan = next(plan for plan in task.plan() if plan.reading.name == "n1")
    assert (plan.decision.reason, plan.decision.effects) == ("control-plane", ())
    assert "zz" in plan.decision.message
