"""Answers that are not durable, and connections that broke."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.api import errors
from ferroscope.contracts.errors import StoreError
from ferroscope.db import executor, store
from tests.simulation.bugs.registry import bug


@bug("not-durable", "what is answered 2xx is not flushed", rule="I6", seeds=40)
def _() -> Iterator[Any]:
    write = store.Store.write
    yield store.Store, "write", lambda self, work, *, durable=True: write(self, work, durable=False)


@bug(
    "broken-twice",
    "a connection that broke is rolled back once more (found by this simulation)",
    rule="thread",
    seeds=60,
    faults=("broken connections", "broken connections", "pause in transaction"),
)
def _() -> Iterator[Any]:
    def rollback(connection: Any) -> None:
        try:
            executor.execute(connection, "ROLLBACK")
        except executor.DBAPIError:
            connection.invalidate()

    yield executor, "rollback", rollback


@bug("outage-is-a-fault", "a database that is away is answered as a fault of ours", rule="I7", seeds=20)
def _() -> Iterator[Any]:
    translate = errors.translate
    yield errors, "translate", lambda exc: None if isinstance(exc, StoreError) else translate(exc)
