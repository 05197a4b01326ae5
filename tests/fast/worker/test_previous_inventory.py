"""The inventory before this one, which hooks compare with."""

from __future__ import annotations

from typing import Any

import msgspec

from ferroscope.contracts.store import packed
from ferroscope.core.model import Inspection
from ferroscope_client.core.states import State
from tests.fast.hooks.runs import NODE, OTHER, context


def inspected(store: Any, number: int, *, state: State = State.FINISHED, node: str = NODE, data: bool = True) -> None:
    """Store an inspection that began at ``number``, whose inventory says so."""

    def work(tx: Any) -> None:
        tx.inspections.add(Inspection(uuid=f"i{number}", node=node, state=state, started_at=float(number)))
        if data:
            tx.data.save(f"i{number}", node, packed({"inventory": msgspec.json.encode({"number": number})}))

    store.write(work)


def test_it_is_the_newest_that_finished() -> None:
    task = context(elsewhere={"aa:bb:cc:00:00:77": OTHER})
    inspected(task.store, 1)
    inspected(task.store, 2)
    inspected(task.store, 3, state=State.ERROR)
    inspected(task.store, 4, node=OTHER)
    assert task.previous_inventory() == {"number": 2}


def test_it_is_of_an_inspection_before_this_one_also_when_that_is_processed_again() -> None:
    task = context()
    inspected(task.store, 1)
    inspected(task.store, 2)
    task.inspection = Inspection(uuid="i2", node=NODE, state=State.REAPPLYING, started_at=2.0)
    assert task.previous_inventory() == {"number": 1}


def test_an_inspection_without_data_has_no_inventory() -> None:
    task = context()
    inspected(task.store, 1, data=False)
    assert task.previous_inventory() is None
