"""Answers that are not durable, and connections that broke."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.adapters.sql import session, store
from ferroscope.api import errors
from ferroscope.contracts.errors import StoreUnavailableError
from tests.simulation.bugs.registry import bug


@bug("not-durable", "what is answered 2xx is not flushed", rule="I6", seeds=40)
def _() -> Iterator[Any]:
    write = store.SqlStore.write
    yield store.SqlStore, "write", lambda self, work, *, durable=True: write(self, work, durable=False)


@bug(
    "broken-twice",
    "a connection that broke is rolled back once more (found by this simulation)",
    rule="thread",
    seeds=20,
)
def _() -> Iterator[Any]:
    def rollback(connection: Any) -> None:
        try:
            session._run(connection, "ROLLBACK")
        except session.DBAPIError:
            connection.invalidate()

    yield session, "rollback", rollback


@bug("outage-is-a-fault", "a database that is away is answered as a fault of ours", rule="I7", seeds=20)
def _() -> Iterator[Any]:
    translate = errors.translate
    yield errors, "translate", lambda exc: None if isinstance(exc, StoreUnavailableError) else translate(exc)
