"""``db.rules.Expectations`` on every database."""

from __future__ import annotations

import msgspec

from ferroscope_client.core.expectation import Expectation
from tests.store.conftest import Adapter
from tests.support import examples


def test_expectations_are_replaced_as_a_whole_and_keep_their_order(adapter: Adapter) -> None:
    first = [
        Expectation(name=name, nodes="a=b", severity="failure", expect=["has gpu", "ü"]) for name in ("b", "A", "a")
    ]
    before = adapter.read(lambda tx: tx.rules.revision())
    adapter.write(lambda tx: tx.expectations.replace(first))
    assert adapter.read(lambda tx: list(tx.expectations.list())) == first
    adapter.write(lambda tx: tx.expectations.replace(first[:1]))
    assert adapter.read(lambda tx: list(tx.expectations.list())) == first[:1]
    assert adapter.read(lambda tx: tx.rules.revision()) == before + 2
    adapter.write(lambda tx: tx.expectations.replace([]))
    assert adapter.read(lambda tx: list(tx.expectations.list())) == []


def test_nodes_that_deviate_are_counted(adapter: Adapter) -> None:
    before = adapter.read(lambda tx: tx.statistics.fleet().census).condition.deviating
    found = {"deviations": [{"expectation": "a", "severity": "warning", "condition": "has gpu", "found": "no gpu"}]}
    node = examples.node(attributes=found)
    adapter.write(
        lambda tx: (tx.nodes.add(node), tx.nodes.add(examples.node(attributes={"description": "deviations"})))
    )
    assert adapter.read(lambda tx: tx.statistics.fleet().census).condition.deviating == before + 1
    adapter.write(lambda tx: tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), attributes={})))
    assert adapter.read(lambda tx: tx.statistics.fleet().census).condition.deviating == before


def test_nodes_are_counted_by_the_health_in_their_summary(adapter: Adapter) -> None:
    before = adapter.read(lambda tx: tx.statistics.fleet().census).condition
    summaries = [
        {"health": "ok"},
        {"health": "critical", "failing_drives": 2, "product": "R740"},
        {"health": "warning", "failing_drives": 1},
        {"product": '"health":"critical", "failing_drives":'},
        {},
    ]
    nodes = [examples.node(hardware=summary) for summary in summaries]
    adapter.write(lambda tx: [tx.nodes.add(node) for node in nodes])
    after = adapter.read(lambda tx: tx.statistics.fleet().census).condition
    assert {name: getattr(after, name) - getattr(before, name) for name in after.__struct_fields__} == {
        "ok": 1,
        "warning": 1,
        "critical": 1,
        "failing_drives": 2,
        "deviating": 0,
    }
