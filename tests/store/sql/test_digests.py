"""The digest of a day: each day has one, and it says what happened within it."""

from __future__ import annotations

from typing import Any

from ferroscope.core.model import HARDWARE_CHANGED, Entry, Inspection
from ferroscope.core.states import State
from tests.store.conftest import Adapter
from tests.support import examples


def ended(adapter: Adapter, at: float, state: State = State.FINISHED, **fields: Any) -> Inspection:
    node = adapter.node(name=fields.pop("name", None))
    one = Inspection(uuid=examples.uuid(), node=node.uuid, state=state, started_at=at - 1, finished_at=at, **fields)
    adapter.write(lambda tx: tx.inspections.add(one))
    return one


def test_each_day_has_one_digest_and_the_first_has_none(adapter: Adapter) -> None:
    assert [adapter.write(lambda tx, day=day: tx.digests.begin(day)) for day in (5, 5, 6, 6, 4, 9)] == [
        False, False, True, False, False, True,
    ]  # fmt: skip


def test_a_clock_that_was_a_month_ahead_costs_no_month_of_digests(adapter: Adapter) -> None:
    assert [adapter.write(lambda tx, day=day: tx.digests.begin(day)) for day in (5, 6, 36, 7, 7, 8, 9)] == [
        False, True, True, False, False, True, True,
    ]  # fmt: skip


def test_it_counts_what_ended_within_its_day(adapter: Adapter) -> None:
    now = adapter.read(lambda tx: tx.now)
    for at in (now - 100, now - 50, now - 200_000):
        ended(adapter, at)
    ended(adapter, now - 40, State.ERROR, reason="timeout")
    ended(adapter, now - 30, reapplies=examples.uuid())
    changed = ended(adapter, now - 20, changes=2, name="rack1-u01")
    step = Entry(node=changed.node, inspection=changed.uuid, step=HARDWARE_CHANGED, message="DIMM A2 is gone")
    adapter.write(lambda tx: tx.journal.append([step]))
    found = adapter.read(lambda tx: tx.digests.read(now - 86_400, now))
    assert (found.finished, dict(found.failures), found.changed) == (3, {"timeout": 1}, 1)
    assert [(one.name, one.text) for one in found.changes] == [("rack1-u01", "DIMM A2 is gone")]
    assert "3 inspections finished, 1 failed." in found.text
    assert "rack1-u01: DIMM A2 is gone" in found.text
