"""What was stored while the database's clock was a day ahead; apart, for it changes rows by SQL of its own."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from ferroscope.core.credentials import WebSession
from ferroscope.core.discovery import RefusedCaller
from ferroscope.core.states import Event
from tests.store.conftest import Adapter
from tests.support import examples


def test_nothing_lasts_for_a_day_because_the_clock_was_a_day_ahead(adapter: Adapter) -> None:
    node = adapter.node()
    adapter.join("dead", ttl=6.0)
    lease = adapter.write(lambda tx: tx.leases.acquire("backup", "dead", 6.0))
    adapter.put(examples.request(node, Event.VERIFY))
    adapter.write(lambda tx: tx.rejections.add(node.uuid, ["52:54:00:00:00:01"]))
    caller = RefusedCaller(
        source="192.0.2.66", machine="", macs=[], bmc_addresses=[], serial=None, reason="lookup-unknown", message="",
        called_at=adapter.read(lambda tx: tx.now),
    )  # fmt: skip
    adapter.write(lambda tx: tx.refused_callers.put(caller))
    later = ("leases SET expires_at = expires_at", "members SET expires_at = expires_at", "requests SET due_at = 4e9")
    with adapter.store.engine.connect() as connection:
        for what in (*later, "rejections SET rejected_at = rejected_at", "refused_callers SET called_at = called_at"):
            connection.execute(text(f"UPDATE {what} + 86400"))
    assert not adapter.members()["dead"].is_alive(adapter.read(lambda tx: tx.now))
    adapter.write(lambda tx: tx.clock_steps.shorten())
    now = adapter.read(lambda tx: tx.now)
    (held,) = adapter.read(lambda tx: tx.leases.list())
    assert (held.epoch, held.holder) == (lease.epoch, lease.lease.holder)
    assert 0 < held.remaining <= 6.0
    assert now - 6.0 < adapter.members()["dead"].expires_at <= now + 6.0
    (rejection,) = adapter.read(lambda tx: tx.rejections.list())
    assert rejection.rejected_at <= now
    assert adapter.read(lambda tx: tx.refused_callers.list())[0].called_at <= now
    adapter.join("worker-1")
    assert adapter.must_claim("worker-1").request.node == node.uuid


def test_a_time_out_and_a_session_last_no_longer_than_from_now_on(adapter: Adapter) -> None:
    node = adapter.node()
    now = adapter.read(lambda tx: tx.now)
    waiting = examples.inspection(node, clock_since=now + 86400.0)
    session = WebSession(id="s", sealed="x", user="alice", created_at=now + 86400.0, expires_at=now + 90000.0)
    adapter.write(lambda tx: tx.inspections.add(waiting))
    adapter.write(lambda tx: tx.web_sessions.add(session))
    adapter.write(lambda tx: tx.clock_steps.shorten())
    now = adapter.read(lambda tx: tx.now)
    assert now - 60.0 < (adapter.read(lambda tx: tx.inspections.get(waiting.uuid)).clock_since or 0.0) <= now
    left = adapter.read(lambda tx: tx.web_sessions.get("s"))
    assert left is not None
    assert left.expires_at - left.created_at == pytest.approx(3600.0)
    assert now - 60.0 < left.created_at <= now
