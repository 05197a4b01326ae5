"""What threads that share a store wait for: the only writer of SQLite, and a connection."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Empty

import pytest

from ferroscope import transition
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.telemetry import Moved, Silent
from ferroscope.core.model import Node
from ferroscope.db import Store, Transaction
from ferroscope.db.connections import ConnectionPool
from ferroscope.db.engine import build_engine
from ferroscope.runtime.system import SystemClock
from ferroscope_client.core.states import State
from tests.support import databases, examples
from tests.support.processes import PATIENCE
from tests.support.stores import open_store


class _Writes(Silent):
    """Writes to the store whenever a node has moved."""

    store: Store
    written = 0

    def record_transition(self, moved: Moved) -> None:
        self.store.write(lambda tx: tx.journal.append([examples.entry(moved.node)]))
        self.written += 1


def test_what_is_reported_of_a_transaction_keeps_no_other_writer_waiting() -> None:
    meter = _Writes()
    meter.store = store = open_store(meter=meter)

    def work(tx: Transaction) -> Node:
        tx.nodes.add(node := examples.node())
        return transition.start(tx, node, inspection=examples.uuid(), process="api")

    assert store.write(work).state is State.STARTING
    assert meter.written == 1


def test_who_finds_no_free_connection_gets_the_next_that_is_given_back(tmp_path: Path) -> None:
    connections = _connections(tmp_path, size=1, timeout=PATIENCE)
    lent, found = connections.borrow(), []
    waiting = threading.Thread(target=lambda: found.append(connections.borrow()))
    waiting.start()
    connections.give_back(lent)
    waiting.join(PATIENCE)
    assert found == [lent]


def test_a_connection_that_none_gives_back_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    connections = _connections(tmp_path, size=1, timeout=0.0)
    lent = connections.borrow()
    with pytest.raises(Empty):
        connections.borrow()
    connections.give_back(lent)
    assert connections.borrow() is lent


def test_of_many_who_share_few_connections_no_two_have_the_same(tmp_path: Path) -> None:
    connections = _connections(tmp_path, size=2, timeout=PATIENCE)
    lent: set[int] = set()
    shared = []

    def work() -> None:
        for _ in range(200):
            connection = connections.borrow()
            shared.append(id(connection) in lent)
            lent.add(id(connection))
            lent.discard(id(connection))
            connections.give_back(connection)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert shared == [False] * 8 * 200


def _connections(directory: Path, *, size: int, timeout: float) -> ConnectionPool:
    engine = build_engine(DatabaseSettings(connection=databases.sqlite(directory)))
    return ConnectionPool(engine, size=size, timeout=timeout, clock=SystemClock())
