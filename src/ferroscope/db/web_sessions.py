"""Sessions of browsers in SQL."""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import Delete, bindparam, delete, insert, select

from ferroscope.core.web_session import WebSession
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, one_of, padded, several
from ferroscope.db.session import SqlSession

_SESSION = Mapper(WebSession, schema.web_sessions)

_s = schema.web_sessions.c
_ADD = insert(schema.web_sessions)
_GET = select(*_SESSION.columns).where(_s.id == bindparam("id"), _s.expires_at > bindparam("now"))
_ENDED = select(_s.id).where(_s.expires_at < bindparam("before")).order_by(_s.id).limit(bindparam("limit"))


@lru_cache(maxsize=16)
def _delete(sessions: int) -> Delete:
    return delete(schema.web_sessions).where(one_of(_s.id, "id", sessions))


class SqlWebSessions:
    """See ``contracts.store.WebSessions``."""

    def __init__(self, tx: SqlSession) -> None:
        self._tx = tx

    def add(self, session: WebSession) -> None:
        self._tx.ask(_ADD, _SESSION.to_row(session))

    def get(self, ident: str) -> WebSession | None:
        row = self._tx.run(_GET, {"id": ident, "now": self._tx.now}).first()
        return None if row is None else _SESSION.from_row(row)

    def remove(self, ident: str) -> None:
        self._tx.ask(_delete(1), several("id", (ident,)))

    def remove_ended(self, before: float, limit: int) -> int:
        found = self._tx.run(_ENDED, {"before": before, "limit": limit}).scalars()
        if found:
            idents = padded(found)
            self._tx.run(_delete(len(idents)), several("id", idents))
        return len(found)
