"""``db.credentials.WebSessions`` on every database: how many a user may have."""

from __future__ import annotations

import uuid

from ferroscope.core.credentials import WebSession
from tests.store.conftest import Adapter


def add(adapter: Adapter, user: str, created_at: float) -> str:
    ident = uuid.uuid4().hex
    session = WebSession(id=ident, sealed="x", user=user, created_at=created_at, expires_at=9e9)
    adapter.write(lambda tx: tx.web_sessions.add(session))
    return ident


def left(adapter: Adapter, idents: list[str]) -> list[bool]:
    return [adapter.read(lambda tx, ident=ident: tx.web_sessions.get(ident)) is not None for ident in idents]  # type: ignore[misc]


def test_the_oldest_sessions_of_a_user_go(adapter: Adapter) -> None:
    mine = [add(adapter, "token:alice", at) for at in (5.0, 1.0, 4.0, 2.0, 3.0)]
    others = [add(adapter, "http_basic:alice", 0.5), add(adapter, "token:bob", 0.5)]
    assert adapter.write(lambda tx: tx.web_sessions.remove_oldest("token:alice", 5)) == 0
    assert adapter.write(lambda tx: tx.web_sessions.remove_oldest("token:alice", 2)) == 3
    assert left(adapter, mine) == [True, False, True, False, False]
    assert left(adapter, others) == [True, True]
    assert adapter.write(lambda tx: tx.web_sessions.remove_oldest("token:alice", 0)) == 2
    assert adapter.write(lambda tx: tx.web_sessions.remove_oldest("token:carol", 0)) == 0
