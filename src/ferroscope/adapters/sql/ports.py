"""The NICs of all nodes in SQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import bindparam, delete, insert, or_, select, update

from ferroscope.adapters.sql import schema
from ferroscope.adapters.sql.batch import Answer
from ferroscope.adapters.sql.conflicts import conflict
from ferroscope.adapters.sql.query import page, page_later
from ferroscope.adapters.sql.rows import Mapper
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Port
from ferroscope.ports.later import Later

if TYPE_CHECKING:
    from ferroscope.adapters.sql.store import SqlTransaction

_PORT = Mapper(Port, schema.ports)

_p = schema.ports.c
_INSERT_PORT = insert(schema.ports)
_SELECT_PORT = select(*_PORT.columns).where(or_(_p.uuid == bindparam("ident"), _p.address == bindparam("ident")))
_UPDATE_PORT = (
    update(schema.ports)
    .where(_p.uuid == bindparam("_uuid"))
    .values({name: bindparam(name) for name in Port.__struct_fields__ if name not in ("uuid", "created_at")})
)


class SqlPorts:
    """See ``contracts.store.Ports``."""

    def __init__(self, tx: SqlTransaction) -> None:
        self._tx = tx

    def add(self, ports: Iterable[Port]) -> None:
        added = []
        for port in ports:
            row = _PORT.to_row(port)
            row["created_at"] = port.created_at or self._tx.now
            self._tx.ask(_INSERT_PORT, row, failed=partial(conflict, row=row, table=schema.ports))
            added.append(port)
        self._tx.macs.added(added)

    def get(self, ident: str) -> Port:
        row = self._tx.run(_SELECT_PORT, {"ident": ident}).first()
        if row is None:
            raise NotFoundError("port", ident)
        return _PORT.from_row(row)

    def update(self, port: Port) -> Port:
        before = self.get(port.uuid)
        changed = msgspec.structs.replace(port, updated_at=self._tx.now)
        row = _PORT.to_row(changed)

        def check(answer: Answer) -> None:
            if answer.rowcount == 0:
                raise NotFoundError("port", port.uuid)

        self._tx.ask(
            _UPDATE_PORT,
            row | {"_uuid": port.uuid},
            check=check,
            failed=partial(conflict, row=row, table=schema.ports),
        )
        if (before.address, before.node) != (port.address, port.node):
            self._tx.macs.removed([(port.uuid, before.address)])
            self._tx.macs.added([port])
        return changed

    def remove(self, uuids: Iterable[str]) -> None:
        wanted = list(uuids)
        found = self._tx.connection.execute(select(_p.uuid, _p.address).where(_p.uuid.in_(wanted)))
        self._tx.macs.removed([(uuid, mac) for uuid, mac in found])
        self._tx.connection.execute(delete(schema.ports).where(_p.uuid.in_(wanted)))

    def list(self, query: Query) -> Sequence[Port]:
        return page(self._tx, _PORT, query)

    def list_later(self, query: Query) -> Later[Sequence[Port]]:
        return page_later(self._tx, _PORT, query)
