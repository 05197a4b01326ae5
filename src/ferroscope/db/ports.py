"""The NICs of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import msgspec
from sqlalchemy import bindparam, delete, insert, or_, select, update

from ferroscope.contracts.data import Later
from ferroscope.contracts.errors import NotFoundError
from ferroscope.contracts.store import Query
from ferroscope.core.model import Port
from ferroscope.db import schema
from ferroscope.db.errors import conflict
from ferroscope.db.macs import Macs
from ferroscope.db.mapping import Mapper, page, page_later, sizes
from ferroscope.db.session import Answer, Session

_PORT = Mapper(Port, schema.ports)

_p = schema.ports.c
_INSERT_PORT = insert(schema.ports)
_SELECT_PORT = select(*_PORT.columns).where(or_(_p.uuid == bindparam("ident"), _p.address == bindparam("ident")))
_UPDATE_PORT = (
    update(schema.ports)
    .where(_p.uuid == bindparam("_uuid"))
    .values({name: bindparam(name) for name in Port.__struct_fields__ if name not in ("uuid", "created_at")})
)


class Ports:
    """The NICs of all nodes."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def add(self, ports: Iterable[Port]) -> None:
        """Store new ports; on ``ConflictError`` (field ``address`` or ``uuid``) none is stored."""
        added = []
        for port in ports:
            row = _PORT.to_row(port)
            row["created_at"] = port.created_at or self._tx.now
            self._tx.ask(_INSERT_PORT, row, failed=partial(conflict, row=row, table=schema.ports))
            self._tx.written.note("port", port.uuid, port.updated_at)
            added.append(port)
        Macs(self._tx).added(added)

    def get(self, ident: str) -> Port:
        """Return the port with this UUID or MAC; ``NotFoundError``."""
        row = self._tx.run(_SELECT_PORT, {"ident": ident}).first()
        if row is None:
            raise NotFoundError("port", ident)
        return _PORT.from_row(row)

    def update(self, port: Port) -> Port:
        """Save all fields and return the port with its new ``updated_at``; ``ConflictError``."""
        self._tx.written.check("port", port.uuid, port.updated_at)
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
            Macs(self._tx).removed([(port.uuid, before.address)])
            Macs(self._tx).added([port])
        self._tx.written.note("port", port.uuid, changed.updated_at)
        return changed

    def remove(self, uuids: Iterable[str]) -> None:
        """Delete these ports; those that do not exist are ignored."""
        wanted = list(uuids)
        removed_ports = self._tx.connection.execute(select(_p.uuid, _p.address).where(_p.uuid.in_(wanted)))
        Macs(self._tx).removed([(uuid, mac) for uuid, mac in removed_ports])
        self._tx.connection.execute(delete(schema.ports).where(_p.uuid.in_(wanted)))

    def list(self, query: Query) -> Sequence[Port]:
        """Return one page of ports."""
        return page(self._tx, _PORT, query)

    def sizes(self, query: Query) -> Sequence[int]:
        """Return, without reading them, the bytes of the documents and long texts of each item of the page."""
        return sizes(self._tx, _PORT, query)

    def list_later(self, query: Query) -> Later[Sequence[Port]]:
        """Like ``list``, but read later; see ``Later``."""
        return page_later(self._tx, _PORT, query)
