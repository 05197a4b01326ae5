"""A claim takes the first row of an index, however many requests wait: no database sorts the queue for it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from ferroscope.config.options import DatabaseSettings
from ferroscope.core.states import Event
from ferroscope.db import queue
from ferroscope.db.engine import build_engine
from ferroscope_client.core.obstacles import Lane
from tests.store.conftest import Adapter
from tests.support import examples

_WAITING: Final = 300
_EXPLAIN: Final = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN ", "mariadb": "EXPLAIN "}
_ANALYZE: Final = {"sqlite": "ANALYZE", "postgresql": "ANALYZE requests", "mariadb": "ANALYZE TABLE requests"}
_SORTS: Final = ("Sort", "TEMP B-TREE", "filesort")


def test_no_claim_sorts_the_queue(adapter: Adapter, database_url: str, database_kind: str) -> None:
    for number in range(_WAITING):
        node = adapter.node(name=f"n{number}")
        adapter.put(examples.request(node, Event.INSPECT))
    engine = build_engine(DatabaseSettings(connection=database_url))
    found = queue._NEXT_OF_LANE if database_kind == "mariadb" else queue._NEXT_OF_LANE_RETURNING
    statement = found.compile(dialect=engine.dialect, compile_kwargs={"render_postcompile": True})
    values = dict(statement.params) | {"_lane": Lane.BMC.value}
    values |= {name: "" for name in values if name.startswith("_without")}
    ordered = [values[name] for name in statement.positiontup] if statement.positiontup else values
    with engine.connect() as connection:
        connection.execute(text(_ANALYZE[database_kind]))
        rows = connection.exec_driver_sql(_EXPLAIN[database_kind] + statement.string, _given(ordered)).all()
        connection.rollback()
    engine.dispose()
    plan = "\n".join(" ".join(map(str, row)) for row in rows)
    assert "ix_requests_queue" in plan, plan
    assert not any(word in plan for word in _SORTS), plan


def _given(values: object) -> object:
    return tuple(values) if isinstance(values, list) else values
