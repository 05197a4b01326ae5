"""What grows with the age of a service is read by an index; ``tests.support.plans`` says it of all statements."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ferroscope.config.options import DatabaseSettings
from ferroscope.db import Transaction
from ferroscope.db.engine import build_engine
from tests.support import examples
from tests.support.plans import GROWING
from tests.support.statements import recording
from tests.support.stores import open_store

NODE = examples.uuid()


@pytest.mark.parametrize(
    "read",
    [
        lambda tx: tx.outbox.tallies(),
        lambda tx: tx.outbox.list(limit=10, node=NODE),
        lambda tx: tx.outbox.list(limit=10, state="dead"),
        lambda tx: tx.audit.list(limit=10, node=NODE),
        lambda tx: tx.audit.list(limit=10, user="root"),
        lambda tx: tx.nodes.usage("a", with_bytes=True),
    ],
)
def test_a_growing_table_is_read_by_an_index(read: Callable[[Transaction], object], tmp_path: Path) -> None:
    with recording(tmp_path / "statements"):
        store = open_store()
        store.read(read)
    statements = [json.loads(line) for line in (tmp_path / "statements").read_text().splitlines()]
    assert statements
    engine = build_engine(DatabaseSettings(connection=store.engine.url.render_as_string()))
    with engine.connect() as connection:
        steps = [
            str(step[-1])
            for _, text, values in statements
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", tuple(values))
        ]
    engine.dispose()
    assert not [step for step in steps if step.startswith(tuple(f"SCAN {table}" for table in GROWING))]
