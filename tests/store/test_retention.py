"""What retention finds to delete, on every database."""

from __future__ import annotations

import msgspec
import pytest

from ferroscope.contracts.store import Part, Query, packed
from ferroscope_client.core.states import State
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
    surplus = adapter.read(lambda tx: tx.inspections.find_surplus(number, None, 100))
    adapter.write(lambda tx: tx.inspections.remove(surplus.keys))
    kept = {one.uuid for one in adapter.read(lambda tx: tx.inspections.list(Query()))}
    assert {place for place, one in enumerate(made) if one.uuid in kept} == left


def test_a_node_with_more_surplus_than_a_page_is_looked_at_again(adapter: Adapter) -> None:
    node = adapter.node()
    made = [examples.inspection(node, state=State.ERROR, started_at=float(at), finished_at=at + 0.5) for at in range(5)]
    adapter.write(lambda tx: [tx.inspections.add(one) for one in made])
    pages = []
    for _ in range(3):
        after = pages[-1].after if pages else None
        pages.append(adapter.read(lambda tx, after=after: tx.inspections.find_surplus(1, after, 3)))  # type: ignore[misc]
        adapter.write(lambda tx: tx.inspections.remove(pages[-1].keys))
    assert [(page.keys, page.is_last) for page in pages] == [
        ([one.uuid for one in made[:3]], False), ([made[3].uuid], True), ([], True),
    ]  # fmt: skip


def test_logs_of_ramdisks_go_and_leave_the_data(adapter: Adapter) -> None:
    node = adapter.node()
    with_log, without = examples.inspection(node), examples.inspection(node)
    parts: dict[Part, bytes] = {"inventory": b"{}", "logs": b"\x1f\x8bnot JSON"}
    adapter.write(lambda tx: tx.data.save(with_log.uuid, node.uuid, packed(parts)))
    adapter.write(lambda tx: tx.data.save(without.uuid, node.uuid, packed({"inventory": b"{}"})))

    def found() -> list[str]:
        return adapter.read(lambda tx: tx.data.find_logs([with_log.uuid, without.uuid]))

    assert found() == [with_log.uuid]
    assert adapter.write(lambda tx: tx.data.remove_logs(found())) == 1
    assert found() == adapter.read(lambda tx: tx.data.find_logs([])) == []
    left = adapter.read(lambda tx: tx.data.load(with_log.uuid, ("inventory", "logs")))
    assert left == {"inventory": b"{}"}
