"""``Inspections.remove_surplus`` on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.data import Part, packed
from ferroscope.contracts.store import Query
from ferroscope.core.states import State
from tests.store.conftest import Adapter
from tests.support import examples


@pytest.mark.parametrize(("number", "left"), [(1, {0, 3}), (2, {0, 2, 3}), (9, {0, 1, 2, 3})])
def test_surplus_inspections_go_but_never_the_newest_good_one(adapter: Adapter, number: int, left: set[int]) -> None:
    """Of four inspections, all but the first failed; the last is that of the node."""
    node = adapter.node()
    states = (State.FINISHED, State.ERROR, State.ERROR, State.ERROR)
    made = [
        examples.inspection(node, state=state, started_at=float(place), finished_at=place + 0.5)
        for place, state in enumerate(states)
    ]

    def fill(tx):  # type: ignore[no-untyped-def]
        for one in made:
            tx.inspections.add(one)
        tx.nodes.update(msgspec.structs.replace(tx.nodes.get(node.uuid), inspection=made[3].uuid))

    adapter.write(fill)
    adapter.write(lambda tx: tx.inspections.remove_surplus(number, 100))
    kept = {one.uuid for one in adapter.read(lambda tx: tx.inspections.list(Query()))}
    assert {place for place, one in enumerate(made) if one.uuid in kept} == left


def test_old_logs_of_ramdisks_go_and_leave_the_data(adapter: Adapter) -> None:
    node = adapter.node()
    some = [examples.inspection(node) for _ in range(2)]
    for one in some:
        parts: dict[Part, bytes] = {"inventory": b"{}", "logs": b"\x1f\x8bnot JSON"}
        adapter.write(lambda tx, one=one, parts=parts: tx.data.save(one.uuid, node.uuid, packed(parts)))  # type: ignore[misc]
    later = adapter.read(lambda tx: tx.now) + 60.0
    for before, removed in ((0.0, 0), (later, 1), (later, 1), (later, 0)):
        assert adapter.write(lambda tx, before=before: tx.data.remove_logs(before, 1)) == removed  # type: ignore[misc]
    for one in some:
        left = adapter.read(lambda tx, one=one: tx.data.load(one.uuid, ("inventory", "logs")))  # type: ignore[misc]
        assert left == {"inventory": b"{}"}
