"""``Inspections.remove_surplus`` on every adapter."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.domain.states import State
from ferroscope.ports.store import Query
from tests.conformance.conftest import Adapter
from tests.support import examples


@pytest.mark.parametrize(("number", "left"), [(1, {0, 3}), (2, {0, 2, 3}), (3, {0, 1, 2, 3}), (9, {0, 1, 2, 3})])
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
