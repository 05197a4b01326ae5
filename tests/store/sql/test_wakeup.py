"""What one process puts on the queue or hands back wakes the other ones up, on each of the SQL databases."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import structlog.testing

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.db.engine import build_engine
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE, until


@pytest.fixture
def pair(database_url: str) -> Iterator[tuple[Backend, Backend]]:
    """Two processes' connections to one database; the first one listens."""
    settings = Settings(database=DatabaseSettings(connection=database_url))
    stop = threading.Event()
    backends = [open_backend(settings, clock=SystemClock(), stop=stop, listen=listen) for listen in (True, False)]
    before = threading.active_count()
    assert until(lambda: backends[0].bus.hears)
    yield backends[0], backends[1]
    stop.set()
    assert until(lambda: threading.active_count() < before)
    for backend in backends:
        backend.close()


def _position(backend: Backend, channel: str) -> int:
    return backend.bus.wait(channel, 0, 0.0)


def _woken(backend: Backend, channel: str, seen: int) -> bool:
    """Whether the channel moves past ``seen`` soon."""
    return backend.bus.wait(channel, seen, PATIENCE) > seen


def _caught_up(pair: tuple[Backend, Backend]) -> None:
    """Wait until the listening one has heard of everything that the other one has committed: it hears in that order."""
    listening, other = pair
    seen = _position(listening, "requests")
    other.store.write(lambda tx: tx.requests.put(Request(node=examples.uuid(), event=Event.INSPECT)))
    assert _woken(listening, "requests", seen)


def test_a_new_request_wakes_other_processes_up(pair: tuple[Backend, Backend]) -> None:
    listening, other = pair
    node = examples.node()
    for _ in range(2):
        seen = _position(listening, "requests")
        other.store.write(lambda tx: tx.requests.put(Request(node=node.uuid, event=Event.INSPECT)))
        assert _woken(listening, "requests", seen)


def test_a_released_lease_wakes_other_processes_up_and_a_held_one_does_not(pair: tuple[Backend, Backend]) -> None:
    listening, other = pair
    for _ in range(2):
        lease = other.store.write(lambda tx: tx.leases.acquire("backup", "somebody", 60.0))
        _caught_up(pair)
        seen = _position(listening, "leases")
        other.store.write(lambda tx, lease=lease: tx.leases.renew(lease, 60.0))  # type: ignore[misc]
        _caught_up(pair)
        assert _position(listening, "leases") == seen
        other.store.write(lambda tx, lease=lease: tx.leases.release(lease))  # type: ignore[misc]
        assert _woken(listening, "leases", seen)


def test_a_member_that_leaves_wakes_others_up_for_its_leases(pair: tuple[Backend, Backend]) -> None:
    listening, other = pair
    other.store.write(lambda tx: tx.members.beat(examples.member("leaving"), 60.0))
    other.store.write(lambda tx: tx.leases.acquire("backup", "leaving", 60.0))
    _caught_up(pair)
    seen = _position(listening, "leases")
    other.store.write(lambda tx: tx.members.leave("leaving"))
    assert _woken(listening, "leases", seen)


# How to list the connections of others to this database, and how to end one of them.
_CONNECTIONS = {
    "postgresql": (
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        "SELECT pg_terminate_backend({})",
    ),
    "mariadb": (
        "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
        "KILL {}",
    ),
}


def test_an_outage_is_said_when_it_begins_and_when_it_ends(
    pair: tuple[Backend, Backend], database_url: str, database_kind: str
) -> None:
    if database_kind == "sqlite":
        return  # a file has no connection to lose
    others, end = _CONNECTIONS[database_kind]
    engine = build_engine(DatabaseSettings(connection=database_url))
    with structlog.testing.capture_logs() as lines:
        with engine.connect() as connection:
            for number in connection.exec_driver_sql(others).scalars().all():
                connection.exec_driver_sql(end.format(number))
        assert until(lambda: any(line["event"] == "wake-up connection is back" for line in lines))
    engine.dispose()
    said = [line["event"] for line in lines if line["event"].startswith("wake-up")]
    assert said == ["wake-up connection lost, polling until it is back", "wake-up connection is back"]
    assert until(lambda: pair[0].bus.hears)
