"""What searches look at, in SQL: written in few statements, because every inspection pays for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from sqlalchemy import bindparam, delete, select, text

from ferroscope.adapters.sql import inserts, schema
from ferroscope.adapters.sql.searching import condition
from ferroscope.contracts.data import Match
from ferroscope.hardware import expressions
from ferroscope.hardware.search_index import Fact

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_f, _n = schema.facts.c, schema.nodes.c
_NAMES: Final = Fact.__struct_fields__
_DELETE = delete(schema.facts).where(_f.node == bindparam("_node"))
_SELECT = select(*(_f[name] for name in _NAMES)).where(_f.node == bindparam("node")).order_by(_f.kind, _f.position)
# PostgreSQL's driver spends a third of a millisecond more on hundreds of parameters, whose types differ
# from one machine to the next, than on one; and the server plans such a statement anew each time.
_TYPES: Final = {"p": "integer", "n": "double precision", "k": "varchar", "t": "varchar"}
_INSERT_JSON = text(
    f"INSERT INTO facts (node, {', '.join(_NAMES)}) SELECT :node, "  # noqa: S608  # names of ours
    + ", ".join(f"CAST(fact ->> {place} AS {_TYPES[name[0]]})" for place, name in enumerate(_NAMES))
    + " FROM json_array_elements(CAST(:rows AS json)) AS rows (fact)"
)


class SqlFacts:
    """``contracts.store.Facts``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def replace(self, node: str, facts: Sequence[Fact], *, had: bool) -> None:
        if had:
            self._tx.ask(_DELETE, {"_node": node})
        dialect = self._tx.dialect
        if facts and dialect.name == "postgresql" and dialect.driver == "psycopg":
            self._tx.ask(_INSERT_JSON, {"node": node, "rows": msgspec.json.encode(facts).decode()})
            return
        inserts.add(
            self._tx, schema.facts, ("node", *_NAMES), [(node, *msgspec.structs.astuple(fact)) for fact in facts]
        )

    def of(self, node: str) -> Sequence[Fact]:
        return [Fact(*row) for row in self._tx.run(_SELECT, {"node": node})]

    def search(self, query: expressions.Query, limit: int, *, after: str = "") -> Sequence[Match]:
        statement = (
            select(_n.uuid, _n.name, _n.provision_state, _n.maintenance, _n.hardware)
            .where(_n.uuid > after, condition(query))
            .order_by(_n.uuid)
            .limit(limit)
        )
        if expressions.about_hardware(query):
            statement = statement.where(_n.facts.is_not(None))
        return [
            Match(uuid, name, state, bool(maintenance), msgspec.json.decode(hardware or "{}"))
            for uuid, name, state, maintenance, hardware in self._tx.connection.execute(statement)
        ]

    def some(self, nodes: Sequence[str], kinds: Sequence[str]) -> dict[str, list[Fact]]:
        statement = (
            select(_f.node, *(_f[name] for name in _NAMES))
            .where(_f.node.in_(list(nodes)), _f.kind.in_(list(kinds)))
            .order_by(_f.node, _f.kind, _f.position)
        )
        found: dict[str, list[Fact]] = {}
        for node, *row in self._tx.connection.execute(statement):
            found.setdefault(node, []).append(Fact(*row))
        return found
