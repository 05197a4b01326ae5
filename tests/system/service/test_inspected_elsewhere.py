"""What an ironic-inspector finds after a callback was forwarded to it becomes the inventory of the node here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ferroscope.config.options import InspectorSettings, Settings
from ferroscope.contracts.store import Query
from ferroscope.contrib.openstack.forwarding.data import InspectorData
from ferroscope.contrib.openstack.forwarding.inspected_elsewhere import InspectedElsewhere
from ferroscope.contrib.openstack.imports.inspector import prepare_fetched
from ferroscope.core.model import ACCEPTED_AS, FORWARDED, Entry, Node
from ferroscope.db import Transaction
from ferroscope_client.core.states import Provision, State
from ferroscope_sim.inventory import document
from tests.support.http_target import HttpTarget
from tests.support.manual_clock import ManualClock
from tests.support.stores import open_store

NODE = "7b1f7b1f-1111-4111-8111-111111111111"
ENDED = {
    "uuid": NODE,
    "finished": True,
    "state": "finished",
    "started_at": "2026-01-02T03:04:05.678+00:00",
    "finished_at": "2026-01-02T03:09:05+00:00",
    "error": None,
}


class There(HttpTarget):
    """The API of an ironic-inspector; ``answers`` are by path, a status or a document."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, Any] = {}

    def answer(self, path: str, _body: bytes) -> tuple[int, bytes]:
        answer = self.answers.get(path, 404)
        return (answer, b"") if isinstance(answer, int) else (200, json.dumps(answer).encode())

    def has(self, status: Any, data: Any) -> None:
        path = f"/v1/introspection/{NODE}"
        self.answers = {path: status, f"{path}/data": data, f"{path}/data/unprocessed": data}


@pytest.fixture
def there() -> Iterator[There]:
    with There() as server:
        yield server


class Leading:
    """A leadership that nobody takes."""

    def fence(self, tx: Transaction) -> None:
        """Do nothing."""

    def keep_alive(self) -> None:
        """Do nothing."""


class Here:
    """A store with one node, whose callback has just been forwarded, and the task."""

    def __init__(self, url: str) -> None:
        self.clock = ManualClock()
        self.store = open_store(clock=self.clock)
        self.settings = Settings(inspector=InspectorSettings(forward_unknown_to=url, forward_timeout=10.0))
        self.task = self.new_leader()
        self.store.write(lambda tx: tx.nodes.add(Node(uuid=NODE, driver="fake", provision_state=Provision.MANAGEABLE)))
        entry = Entry(node=NODE, step=FORWARDED, message="forwarded", detail={ACCEPTED_AS: NODE})
        self.store.write(lambda tx: tx.journal.append([entry]))

    def new_leader(self) -> InspectedElsewhere:
        source, prepare = InspectorData(self.settings.inspector, None), prepare_fetched(self.settings, self.store)
        return InspectedElsewhere(self.store, source, prepare, process="worker")

    def step(self, seconds: float = 5.0) -> None:
        self.clock.now += seconds
        self.task.step(Leading())

    def inspections(self) -> list[State]:
        found = self.store.read(lambda tx: tx.inspections.list(Query(filters={"node": NODE}, sort_key="started_at")))
        return [State(one.state) for one in found]

    def steps(self) -> list[str]:
        found = self.store.read(lambda tx: tx.journal.list(Query(filters={"node": NODE}, sort_key="id")))
        return [entry.step for entry in found]


@pytest.fixture
def here(there: There) -> Iterator[Here]:
    running = Here(f"{there.url}/v1/continue")
    yield running
    running.task.close()


def test_what_has_ended_there_is_stored_once(there: There, here: Here) -> None:
    there.has(ENDED | {"finished": False, "finished_at": None}, 404)
    here.step()
    assert here.inspections() == []
    there.has(ENDED, document(3))
    here.step()
    here.step()
    assert here.inspections() == [State.FINISHED]
    node = here.store.read(lambda tx: tx.nodes.get(NODE))
    assert (node.state, node.provision_state) == (State.FINISHED, Provision.MANAGEABLE)
    parts = here.store.read(lambda tx: tx.data.load(str(node.inspection), ("inventory",)))
    assert json.loads(parts["inventory"]) == document(3)["inventory"]


def test_a_new_leader_looks_back_and_stores_nothing_twice(there: There, here: Here) -> None:
    there.has(503, 503)
    here.step()
    here.task.close()
    here.task = here.new_leader()
    there.has(ENDED, document(3))
    here.step(600.0)
    assert here.inspections() == [State.FINISHED]
    here.task.close()
    here.task = here.new_leader()
    here.step()
    assert here.inspections() == [State.FINISHED]


@pytest.mark.parametrize(
    ("status", "data"),
    [
        (503, 503),
        ([], 404),
        (ENDED | {"finished": False}, 404),
        (ENDED, ["no", "object"]),
        (ENDED | {"started_at": "?"}, {}),
    ],
)
def test_after_a_while_the_timeline_says_that_it_was_not_fetched(
    there: There, here: Here, status: Any, data: Any
) -> None:
    there.has(status, data)
    here.step()
    here.step(300.0)
    assert "import" not in here.steps()
    here.step(300.0)
    here.step(300.0)
    assert here.steps() == [FORWARDED, "import"]
    assert here.inspections() == []


def test_a_service_that_is_away_is_asked_a_few_times_only_and_for_all_in_turn(there: There, here: Here) -> None:
    others = [f"7b1f7b1f-1111-4111-8111-{number:012d}" for number in range(5)]
    entries = [Entry(node=NODE, step=FORWARDED, message="forwarded", detail={ACCEPTED_AS: one}) for one in others]
    here.store.write(lambda tx: tx.journal.append(entries))
    there.has(503, 503)
    here.step()
    assert len(there.seen) == 3
    here.step()
    assert sorted(request.path for request in there.seen) == sorted(
        f"/v1/introspection/{one}" for one in (NODE, *others)
    )


def test_a_failed_introspection_is_stored_with_its_error(there: There, here: Here) -> None:
    there.has(ENDED | {"state": "error", "error": "Introspection timeout"}, 404)
    here.step()
    assert here.inspections() == [State.ERROR]
    assert "timeout" in str(here.store.read(lambda tx: tx.nodes.get(NODE)).last_error)
