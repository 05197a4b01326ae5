"""Scheduled re-inspection: who is due, how many at a time, and that nothing can boot a machine."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferroscope.contracts.errors import LeaseLostError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.periodic.reinspection import Reinspection
from ferroscope_client.core.states import Provision, State
from tests.support import examples
from tests.support.manual_clock import ManualClock
from tests.support.rows import each
from tests.support.stores import open_store

DAY = 86_400.0


class Site:
    def __init__(self, **options: Any) -> None:
        self.clock = ManualClock()
        self.clock.now = 100 * DAY
        self.store = open_store(clock=self.clock)
        given = {"after": DAY, "selector": "", "at_once": 10, "drivers": ("redfish",), "process": "p"}
        self.task = Reinspection(self.store, **(given | options))
        self.lost = False
        self.leadership: Any = SimpleNamespace(fence=self.fence, keep_alive=lambda: None)

    def fence(self, _tx: Transaction) -> None:
        if self.lost:
            raise LeaseLostError("lost")

    def add(self, *, age: float = 2 * DAY, **fields: Any) -> str:
        usual = {
            "driver": "redfish",
            "state": State.FINISHED,
            "provision_state": Provision.MANAGEABLE,
            "inspection_finished_at": self.clock.now - age,
            "attributes": {"inspect_interface": "redfish"},
        }
        node = examples.node(**(usual | fields))
        self.store.write(lambda tx: tx.nodes.add(node))
        return node.uuid

    def node(self, uuid: str) -> Node:
        return self.store.read(lambda tx: tx.nodes.get(uuid))

    def step(self) -> set[str]:
        self.task.step(self.leadership)
        return {
            node.uuid for node in self.store.read(lambda tx: tx.nodes.list(Query(filters={"state": State.STARTING})))
        }


def test_a_machine_that_is_due_is_inspected_in_a_way_that_cannot_boot_it() -> None:
    site = Site()
    uuid = site.add()
    assert site.step() == {uuid}
    node = site.node(uuid)
    assert not site.store.read(lambda tx: tx.inspections.get(str(node.inspection))).manage_boot


@each(
    "other",
    [
        {"age": 0.5 * DAY},
        {"attributes": {}},
        {"attributes": {"inspect_interface": "agent"}},
        {"driver": "ipmi"},
        {"maintenance": True},
        {"inbox": True},
        {"state": State.ERROR, "provision_state": Provision.INSPECT_FAILED},
        {"provision_state": Provision.AVAILABLE},
        {"inspection_finished_at": None},
        {"labels": {"rack": "r2"}},
    ],
)
def test_other_machines_are_left_alone(other: dict[str, Any]) -> None:
    site = Site(selector="rack!=r2")
    site.add(**other)
    assert site.step() == set()


def test_the_oldest_are_inspected_first_and_those_in_progress_count() -> None:
    site = Site(at_once=3)
    site.add(state=State.WAITING, provision_state=Provision.INSPECT_WAIT, age=50 * DAY)
    ages = [3, 9, 5, 7]
    uuids = {age: site.add(age=age * DAY) for age in ages}
    assert site.step() == {uuids[9], uuids[7]}
    assert site.step() == {uuids[9], uuids[7]}


def test_a_fleet_that_was_inspected_at_once_is_not_due_at_once() -> None:
    site = Site(at_once=1000)
    for _ in range(50):
        site.add(age=1.05 * DAY)
    assert 5 < len(site.step()) < 45
    site.clock.now += 0.06 * DAY
    assert len(site.step()) == 50


def test_who_has_lost_the_lease_starts_nothing() -> None:
    site = Site()
    uuid = site.add()
    site.lost = True
    with pytest.raises(LeaseLostError):
        site.task.step(site.leadership)
    assert site.node(uuid).state is State.FINISHED


def test_what_has_changed_since_it_was_read_is_looked_at_again() -> None:
    site = Site()
    uuid = site.add()
    page = site.task._page

    def changed(driver: str, interface: str, marker: str | None, tx: Transaction) -> tuple[float, list[Node]]:
        found = page(driver, interface, marker, tx)
        node = msgspec.structs.replace(site.node(uuid), attributes={"inspect_interface": "agent"})
        site.store.write(lambda other: other.nodes.update(node))
        return found

    site.task._page = changed  # type: ignore[method-assign]  # somebody changes the node between the two transactions
    assert site.step() == set()


def test_the_out_of_band_interface_may_be_named_after_its_protocol_too() -> None:
    site = Site(drivers=("idrac",))
    due = site.add(driver="idrac", attributes={"inspect_interface": "idrac-redfish"})
    site.add(driver="idrac", attributes={"inspect_interface": "agent"})
    assert site.step() == {due}
