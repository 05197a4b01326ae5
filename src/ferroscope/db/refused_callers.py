"""The machines that called, belong to no node, and were refused; see ``core.lookup.RefusedCaller``."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select

from ferroscope.core.lookup import RefusedCaller
from ferroscope.db import schema
from ferroscope.db.addresses import Addresses
from ferroscope.db.mapping import Mapper
from ferroscope.db.session import Session
from ferroscope.db.spellings import upsert

_CALLER = Mapper(RefusedCaller, schema.refused_callers)
_c = schema.refused_callers.c
_OF_MACHINE = (_c.source == bindparam("_source"), _c.machine == bindparam("_machine"))
_LIST = select(*_CALLER.columns).order_by(_c.called_at.desc(), _c.source, _c.machine)
_LAST_CALL = select(_c.called_at).where(*_OF_MACHINE)
_REMOVE = delete(schema.refused_callers).where(*_OF_MACHINE)


class RefusedCallers:
    """The last call of each machine from each source address."""

    def __init__(self, tx: Session) -> None:
        self._tx = tx

    def list(self) -> Sequence[RefusedCaller]:
        """Return all, the newest first."""
        return [_CALLER.from_row(row) for row in self._tx.run(_LIST)]

    def list_unknown(self, since: float) -> Sequence[RefusedCaller]:
        """Return those that have called since then, and whose machines belong to no node yet, the newest first."""
        recent = [caller for caller in self.list() if caller.called_at >= since]
        owned = Addresses(self._tx).select_owned([mac for caller in recent for mac in caller.macs])
        return [caller for caller in recent if owned.isdisjoint(caller.macs)]

    def read_last_call(self, source: str, machine: str) -> float | None:
        """Return when this machine called from this address; None if it has not."""
        row = self._tx.run(_LAST_CALL, {"_source": source, "_machine": machine}).first()
        return None if row is None else float(row[0])

    def put(self, caller: RefusedCaller) -> None:
        """Record this call in the place of the machine's call before."""
        self._tx.ask(upsert(self._tx.dialect.name, schema.refused_callers), _CALLER.to_row(caller))

    def remove(self, callers: Sequence[RefusedCaller]) -> None:
        """Forget these machines."""
        for caller in callers:
            self._tx.ask(_REMOVE, {"_source": caller.source, "_machine": caller.machine})
