"""The schema of the next release below this one: it keeps working, and is told so only when it starts anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferroscope import transition
from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.contracts.store import Query
from ferroscope.db import migrate
from ferroscope.db.prepare import SchemaError, ensure_schema
from ferroscope_client.core.states import Provision, State
from tests.store.conftest import Adapter, Open
from tests.support import examples, upgrades


def _inspected(adapter: Adapter) -> State:
    """Start the inspection of a new node, claim its request and consume it; return the node's state."""
    node = adapter.node(provision_state=Provision.MANAGEABLE)
    adapter.write(lambda tx: tx.ports.add([examples.port(node)]))
    adapter.write(lambda tx: transition.start(tx, tx.nodes.get(node.uuid), inspection=examples.uuid(), process="api"))
    claim = adapter.must_claim("worker")
    adapter.write(lambda tx: tx.requests.consume(claim))
    assert adapter.pending(node) == []
    return adapter.get(node.uuid).state


def test_a_release_goes_on_while_the_next_one_upgrades_the_schema_and_cannot_go_back(
    open_adapter: Open, database_kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = request.getfixturevalue(f"{database_kind}_url")
    adapter = open_adapter()
    adapter.join("worker")
    assert _inspected(adapter) is State.STARTING
    with upgrades.next_release(tmp_path):
        upgrades.upgrade(url)
        newer = migrate.HEAD
    assert _inspected(adapter) is State.STARTING
    assert len(adapter.read(lambda tx: tx.nodes.list(Query()))) == 2
    for upgrade in (False, True):
        with pytest.raises(SchemaError, match=f"{newer}, which belongs to a newer release"):
            ensure_schema(Settings(database=DatabaseSettings(connection=url)), upgrade=upgrade)
