"""What a newer release has written is left for those that know it, and stops nobody: requests, events, states."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import text

from ferroscope import transition
from ferroscope.config.options import DatabaseSettings, DriverSettings, Settings, WorkerSettings
from ferroscope.contracts.store import Query
from ferroscope.core.model import Node
from ferroscope.core.states import Provision, State
from ferroscope.runtime import wiring
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.externals import build_drivers
from ferroscope.runtime.member import Membership
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE, until


class Site:
    """A backend, and a worker's pool on it."""

    def __init__(self, url: str) -> None:
        self.settings = Settings(
            database=DatabaseSettings(connection=url),
            worker=WorkerSettings(get_timeout=0.2),
            drivers=DriverSettings(enabled=("fake",)),
        )
        self.stop, clock = threading.Event(), SystemClock()
        self.backend: Backend = open_backend(
            self.settings, clock=clock, stop=self.stop, listen=False, poll_seconds=0.05
        )
        self.membership = Membership(
            self.backend.lease_store, self.settings.worker, role="worker", stop=self.stop, clock=clock
        )
        self.membership.start()
        self.pool = wiring.build_pool(
            self.settings,
            self.backend,
            build_drivers(self.settings),
            clock=clock,
            stop=self.stop,
            member=self.membership.member.id,
            process="worker",
            claim_valid_for=self.membership.claim_valid_for,
        )

    def node(self) -> str:
        node = examples.node(driver="fake", provision_state=Provision.MANAGEABLE)
        self.backend.store.write(lambda tx: tx.nodes.add(node))
        return node.uuid

    def start(self, uuid: str) -> None:
        self.backend.store.write(
            lambda tx: transition.start(tx, tx.nodes.get(uuid), inspection=examples.uuid(), process="api")
        )

    def get(self, uuid: str) -> Node:
        return self.backend.store.read(lambda tx: tx.nodes.get(uuid))

    def execute(self, statement: str, **values: object) -> None:
        with self.backend.store.engine.begin() as connection:  # type: ignore[attr-defined]
            connection.execute(text(statement), values)

    def claims(self, uuid: str) -> list[str | None]:
        """Return who has claimed the node's requests."""
        return self._column("SELECT holder FROM requests WHERE node = :node", uuid)

    def due(self, uuid: str) -> float:
        """Return when the node's only request is due; 0 before it was given back."""
        (due,) = self._column("SELECT due_at FROM requests WHERE node = :node", uuid)
        return float(due)

    def _column(self, statement: str, uuid: str) -> list[Any]:
        with self.backend.store.engine.connect() as connection:  # type: ignore[attr-defined]
            return list(connection.execute(text(statement), {"node": uuid}).scalars())

    def close(self) -> None:
        self.stop.set()
        self.pool.join(PATIENCE)
        self.membership.leave()
        self.backend.close()


@pytest.fixture
def site(database_url: str) -> Iterator[Site]:
    opened = Site(database_url)
    yield opened
    opened.close()


Spoil = Callable[[Site, str], None]


def _event(site: Site, uuid: str) -> None:
    site.execute("UPDATE requests SET event = 'meditate' WHERE node = :node", node=uuid)


def _version(site: Site, uuid: str) -> None:
    site.execute("UPDATE requests SET version = 99 WHERE node = :node", node=uuid)


def _state(site: Site, uuid: str) -> None:
    site.execute("UPDATE nodes SET state = 'meditating', provision_state = 'zen' WHERE uuid = :node", node=uuid)


@pytest.mark.parametrize("spoil", [_event, _version, _state])
def test_what_a_newer_release_has_put_is_left_and_others_go_on(site: Site, spoil: Spoil) -> None:
    theirs, ours = site.node(), site.node()
    site.start(theirs)
    spoil(site, theirs)
    site.start(ours)
    site.pool.start()
    assert until(lambda: site.get(ours).state is State.WAITING)
    # A request with a known event is claimed before its node's state is seen to be unknown; then it is given back.
    assert until(lambda: site.claims(theirs) == [None] and (spoil is not _state or site.due(theirs) > 0.0))
    pending = site.backend.store.read(lambda tx: tx.requests.pending(theirs))
    assert [request.attempt for request in pending] == [0]
    assert not site.stop.is_set()
    assert {node.uuid for node in site.backend.store.read(lambda tx: tx.nodes.list(Query()))} == {theirs, ours}
    assert sum(row.nodes for row in site.backend.store.read(lambda tx: tx.statistics.fleet().census.nodes)) == 2
    assert sum(row.waiting for row in site.backend.store.read(lambda tx: tx.statistics.backlog())) == 1


@pytest.mark.parametrize("spoil", [_state])
def test_a_node_in_a_state_of_a_newer_release_goes_on_when_it_is_back(site: Site, spoil: Spoil) -> None:
    uuid = site.node()
    site.start(uuid)
    spoil(site, uuid)
    site.pool.start()
    assert until(lambda: site.due(uuid) > 0.0)
    site.execute("UPDATE nodes SET state = 'starting', provision_state = 'inspecting' WHERE uuid = :node", node=uuid)
    site.execute("UPDATE requests SET due_at = 0 WHERE node = :node", node=uuid)
    assert until(lambda: site.get(uuid).state is State.WAITING)
