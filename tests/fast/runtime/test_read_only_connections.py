"""Connections that SQLite could open for reading only, because the file system was read-only at that moment."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from ferroscope.contracts.errors import StoreUnavailableError
from ferroscope.contracts.store import Query
from ferroscope.db import Transaction
from tests.support import examples
from tests.support.stores import open_store


def test_a_connection_that_can_only_read_is_replaced_once_a_write_was_refused() -> None:
    store = open_store()
    for_reading = True

    def prepare(_dialect: Any, _record: Any, arguments: list[str], parameters: dict[str, Any]) -> None:
        if for_reading:
            arguments[0] = f"file:{arguments[0]}?mode=ro"
            parameters["uri"] = True

    event.listen(store.engine, "do_connect", prepare)
    store.engine.dispose()  # the connections so far
    node = examples.node()

    def work(tx: Transaction) -> None:
        tx.nodes.list(Query())  # answered: this unit of work is not run again by itself
        tx.nodes.add(node)

    with pytest.raises(StoreUnavailableError, match="readonly"):
        store.write(work)
    for_reading = False
    store.write(work)
    assert store.read(lambda tx: tx.nodes.get(node.uuid)).uuid == node.uuid
