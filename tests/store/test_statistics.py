"""``db.statistics.Statistics`` on every database."""

from __future__ import annotations

import msgspec

from ferroscope.contracts.store import Ended
from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope.transition import explain
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision, State
from tests.store.conftest import Adapter
from tests.support import examples


def test_nodes_are_counted_by_shard(adapter: Adapter) -> None:
    assert adapter.read(lambda tx: tx.statistics.shards()) == {}
    for attributes in ({"shard": "a"}, {"shard": "a"}, {"shard": "A"}, {}, {"description": '"shard": "b"'}):
        adapter.node(attributes=attributes)
    adapter.node(attributes={"network_data": {"shard": "c"}})
    assert adapter.read(lambda tx: tx.statistics.shards()) == {"a": 2, "A": 1, None: 3}


def test_nodes_are_counted_by_label_of_all_or_of_a_project(adapter: Adapter) -> None:
    assert adapter.read(lambda tx: tx.statistics.labels()) == {}
    for labels, owner in (({"Rack": "r1", "spare": ""}, "a"), ({"Rack": "r1"}, "b"), ({"Rack": "R1"}, None), ({}, "a")):
        adapter.node(labels=labels, owner=owner)
    adapter.node(labels={"rack": "r1"}, attributes={"lessee": "a"})
    expected = {("Rack", "r1"): 2, ("Rack", "R1"): 1, ("rack", "r1"): 1, ("spare", ""): 1}
    assert adapter.read(lambda tx: tx.statistics.labels()) == expected
    own = {("Rack", "r1"): 1, ("spare", ""): 1, ("rack", "r1"): 1}
    assert adapter.read(lambda tx: tx.statistics.labels("a")) == own


def test_nodes_are_counted_by_state(adapter: Adapter) -> None:
    for _ in range(3):
        adapter.node(state=State.WAITING, provision_state=Provision.INSPECT_WAIT)
    adapter.node(state=State.NONE, provision_state=Provision.MANAGEABLE)
    adapter.node(state=State.FINISHED, provision_state=Provision.MANAGEABLE)
    counted = {
        (row.state, row.provision_state): row.nodes
        for row in adapter.read(lambda tx: tx.statistics.fleet().census).nodes
    }
    assert counted == {
        (State.WAITING, Provision.INSPECT_WAIT): 3,
        (State.NONE, Provision.MANAGEABLE): 1,
        (State.FINISHED, Provision.MANAGEABLE): 1,
    }


def test_errors_are_counted_by_reason_whatever_the_state(adapter: Adapter) -> None:
    """They are grouped by how their hints end, which must differ; texts of others have no hint, or are short."""
    for number, reason in enumerate(Reason):
        state = State.ERROR if number % 2 else State.NONE
        adapter.node(name=f"b-{number}", state=state, last_error=explain(Fail(reason, f"BMC {number} failed")))
    for name in ("a-2", "a-1"):
        adapter.node(
            name=name, last_error=explain(Fail(Reason.TIMEOUT, f"no callback of {name}: {'ü' * 99} (timeout)"))
        )
    adapter.node(name="old", last_error="it failed (bmc-credentials). A hint of an earlier release, with other words.")
    for name, error in (("odd-1", "Ironic says no"), ("odd-2", "an error of Ironic that is much longer than a hint")):
        adapter.node(name=name, last_error=error)
    found = {one.reason: (one.nodes, one.example) for one in adapter.read(lambda tx: tx.statistics.fleet().failures)}
    numbers = {reason: number for number, reason in enumerate(Reason)}
    expected = {str(reason): (1, f"b-{number}") for reason, number in numbers.items()}
    expected |= {"timeout": (3, "a-1"), "bmc-credentials": (2, expected["bmc-credentials"][1]), "": (2, "odd-1")}
    assert found == expected
    assert [one.nodes for one in adapter.read(lambda tx: tx.statistics.fleet().failures)][:3] == [3, 2, 2]


def test_requests_are_counted_by_event_with_the_age_of_the_oldest(adapter: Adapter) -> None:
    for number in range(3):
        adapter.put(examples.request(adapter.node(), Event.INSPECT, created_at=1000.0 + number))
    adapter.put(examples.request(adapter.node(), Event.CONTINUE, created_at=900.0))
    adapter.join("worker")
    adapter.must_claim("worker")
    rows = {row.event: row for row in adapter.read(lambda tx: list(tx.statistics.backlog()))}
    assert set(rows) == {Event.INSPECT, Event.CONTINUE}
    inspect, resume = rows[Event.INSPECT], rows[Event.CONTINUE]
    assert (inspect.waiting + inspect.claimed, inspect.oldest) == (3, 1000.0)
    assert (resume.waiting + resume.claimed, resume.oldest) == (1, 900.0)
    assert inspect.claimed + resume.claimed == 1


def test_a_member_tells_of_itself_with_each_beat(adapter: Adapter) -> None:
    told = examples.member("a", detail={"loops": {"worker-0": "found no request \u00e9"}, "n": 1})
    adapter.write(lambda tx: tx.members.beat(told, 60.0))
    assert adapter.members()["a"].detail == told.detail
    later = msgspec.structs.replace(told, detail={"loops": {}})
    adapter.write(lambda tx: tx.members.beat(later, 60.0))
    assert adapter.members()["a"].detail == {"loops": {}}
    adapter.write(lambda tx: tx.members.beat(examples.member("b"), 60.0))
    assert adapter.members()["b"].detail == {}


def test_ended_inspections_are_counted_by_interval_and_outcome(adapter: Adapter) -> None:
    assert adapter.read(lambda tx: list(tx.statistics.ended(0.0, 1.0, 2))) == [Ended(0, 0), Ended(0, 0)]
    node = adapter.node()
    given = (
        (State.FINISHED, 99.9), (State.FINISHED, 100.0), (State.ERROR, 109.9), (State.FINISHED, 105.0),
        (State.FINISHED, 110.0), (State.ERROR, 119.0), (State.ERROR, 119.5), (State.FINISHED, 120.0),
        (State.WAITING, None),
    )  # fmt: skip
    again = examples.inspection(node, state=State.FINISHED, finished_at=115.0, reapplies=examples.uuid())
    made = [examples.inspection(node, state=state, finished_at=at) for state, at in given]
    adapter.write(lambda tx: [tx.inspections.add(one) for one in [*made, again]])
    assert adapter.read(lambda tx: list(tx.statistics.ended(100.0, 10.0, 2))) == [Ended(2, 1), Ended(1, 2)]


def test_inspections_that_found_other_hardware_are_counted_and_the_newest_returned(adapter: Adapter) -> None:
    assert adapter.read(lambda tx: tx.statistics.changed(0.0, 2)) == (0, [])
    node = adapter.node()
    given = ((1, 99.9), (1, 100.0), (0, 110.0), (3, 130.0), (2, 120.0), (1, None))
    made = [examples.inspection(node, state=State.FINISHED, finished_at=at, changes=number) for number, at in given]
    adapter.write(lambda tx: [tx.inspections.add(one) for one in made])
    number, newest = adapter.read(lambda tx: tx.statistics.changed(100.0, 2))
    assert (number, [(one.changes, one.finished_at) for one in newest]) == (3, [(3, 130.0), (2, 120.0)])
