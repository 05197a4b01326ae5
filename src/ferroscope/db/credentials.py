"""Access tokens, and sessions of browsers, in SQL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Delete, bindparam, delete, insert, or_, select, update

from ferroscope.contracts.errors import ConflictError
from ferroscope.core.credentials import AccessToken, WebSession
from ferroscope.db import schema
from ferroscope.db.mapping import Mapper, one_of, padded, several
from ferroscope.db.session import Repository

_TOKEN = Mapper(AccessToken, schema.access_tokens)

_t = schema.access_tokens.c
_UNEXPIRED = or_(_t.expires_at.is_(None), _t.expires_at > bindparam("now"))
_ADD = insert(schema.access_tokens)
_LIST = select(*_TOKEN.columns).order_by(_t.created_at, _t.id)
_ACTIVE = select(*_TOKEN.columns).where(_t.revoked_at.is_(None), _UNEXPIRED)
_ACTIVE_NAMED = select(_t.id).where(_t.name == bindparam("name"), _t.revoked_at.is_(None), _UNEXPIRED)
_REVOKE = (
    update(schema.access_tokens)
    .where(_t.id == bindparam("_id"), _t.revoked_at.is_(None))
    .values(revoked_at=bindparam("_now"))
)
_USED = (
    update(schema.access_tokens)
    .where(_t.id == bindparam("_id"), or_(_t.last_used_at.is_(None), _t.last_used_at < bindparam("_before")))
    .values(last_used_at=bindparam("_now"))
)
_ENDED = (
    select(_t.id)
    .where(or_(_t.revoked_at < bindparam("before"), _t.expires_at < bindparam("before")))
    .order_by(_t.id)
    .limit(bindparam("limit"))
)


@lru_cache(maxsize=16)
def _delete(tokens: int) -> Delete:
    return delete(schema.access_tokens).where(one_of(_t.id, "id", tokens))


class AccessTokens(Repository):
    """The access tokens that this service issues."""

    def add(self, token: AccessToken) -> None:
        """Store a new token; ``ConflictError`` if an active one has its name (field ``name``) or any one its ID."""
        if self._tx.run(_ACTIVE_NAMED, {"name": token.name, "now": self._tx.now}).first() is not None:
            raise ConflictError("name", token.name)
        # id is the only constraint
        self._tx.ask(_ADD, _TOKEN.to_row(token), failed=lambda _: ConflictError("id", token.id))

    def active(self) -> Sequence[AccessToken]:
        """Return the tokens that are neither revoked nor expired."""
        return self._all(self._tx.run(_ACTIVE, {"now": self._tx.now}))

    def list(self) -> Sequence[AccessToken]:
        """Return all tokens, oldest first."""
        return self._all(self._tx.run(_LIST))

    def revoke(self, ident: str) -> bool:
        """Revoke the token with this ID; return False if it does not exist or is revoked already."""
        return self._tx.run(_REVOKE, {"_id": ident, "_now": self._tx.now}).rowcount > 0

    def used(self, ident: str, before: float) -> None:
        """Set ``last_used_at`` to now, unless it is ``before`` or later."""
        self._tx.ask(_USED, {"_id": ident, "_before": before, "_now": self._tx.now})

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` tokens that expired or were revoked before this time; return their number."""
        idents = self._tx.run(_ENDED, {"before": before, "limit": limit}).scalars()
        if idents:
            padded_idents = padded(idents)
            self._tx.run(_delete(len(padded_idents)), several("id", padded_idents))
        return len(idents)

    @staticmethod
    def _all(rows: Any) -> Sequence[AccessToken]:
        return [_TOKEN.from_row(row) for row in rows]


_SESSION = Mapper(WebSession, schema.web_sessions)

_s = schema.web_sessions.c
_ADD_SESSION = insert(schema.web_sessions)
_GET = select(*_SESSION.columns).where(_s.id == bindparam("id"), _s.expires_at > bindparam("now"))
_ENDED_SESSION = (
    select(_s.id).where(_s.expires_at < bindparam("before")).order_by(_s.expires_at).limit(bindparam("limit"))
)
# Sessions deleted by one login: more than simultaneous logins of one user can add beyond the limit.
_MOST_AT_ONCE = 1000
_OLDEST = (
    select(_s.id)
    .where(_s.user == bindparam("user"))
    .order_by(_s.created_at.desc(), _s.id)
    .offset(bindparam("kept"))
    .limit(_MOST_AT_ONCE)
)


@lru_cache(maxsize=16)
def _delete_session(sessions: int) -> Delete:
    return delete(schema.web_sessions).where(one_of(_s.id, "id", sessions))


class WebSessions(Repository):
    """The sessions of browsers that have logged in to the web page."""

    def add(self, session: WebSession) -> None:
        """Store a new session; its ID is random."""
        self._tx.ask(_ADD_SESSION, _SESSION.to_row(session))

    def get(self, ident: str) -> WebSession | None:
        """Return the session with this ID, None if there is none or it has expired."""
        row = self._tx.run(_GET, {"id": ident, "now": self._tx.now}).first()
        return None if row is None else _SESSION.from_row(row)

    def remove(self, ident: str) -> None:
        """Delete the session, if it exists."""
        self._tx.ask(_delete_session(1), several("id", (ident,)))

    def remove_oldest(self, user: str, kept: int) -> int:
        """Delete the sessions of this user except the newest ``kept``; return their number."""
        return self._remove(self._tx.run(_OLDEST, {"user": user, "kept": kept}).scalars())

    def remove_ended(self, before: float, limit: int) -> int:
        """Delete up to ``limit`` sessions that expired before this time; return their number."""
        return self._remove(self._tx.run(_ENDED_SESSION, {"before": before, "limit": limit}).scalars())

    def _remove(self, idents: Sequence[str]) -> int:
        if idents:
            padded_idents = padded(idents)
            self._tx.run(_delete_session(len(padded_idents)), several("id", padded_idents))
        return len(idents)
