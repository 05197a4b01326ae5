"""Answers that are not durable, and connections that broke."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ferroscope.adapters.sql import session, store
from tests.simulation.bugs.registry import bug


@bug("not-durable", "what is answered 2xx is not flushed", seeds=40)
def _() -> Iterator[Any]:
    write = store.SqlStore.write
    yield store.SqlStore, "write", lambda self, work, *, durable=True: write(self, work, durable=False)


@bug("broken-twice", "a connection that broke is rolled back once more (found by this simulation)", seeds=20)
def _() -> Iterator[Any]:
    def rollback(connection: Any) -> None:
        try:
            session._run(connection, "ROLLBACK")
        except session.DBAPIError:
            connection.invalidate()

    yield session, "rollback", rollback
