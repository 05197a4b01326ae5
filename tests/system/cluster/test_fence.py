"""Why the fence is an UPDATE: with a SELECT or an EXISTS an old leader's write commits after the takeover.

Two connections, the old leader's and the successor's, in the one order that matters: the old leader looks at its
lease, which expires, and writes; the successor takes over; the old leader commits. Each step is
real, on the real database.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, Engine, text

from ferroscope.bus.local import LocalBus
from ferroscope.config.options import DatabaseSettings
from ferroscope.contracts.errors import LeaseHeldError, StoreError
from ferroscope.core.model import LeaseClaim
from ferroscope.db import Store, executor, leases
from ferroscope.db.connections import Memory
from ferroscope.db.engine import build_engine
from ferroscope.db.errors import classify
from ferroscope.db.executor import COMMIT, database_of
from ferroscope.db.leases import _digest
from ferroscope.db.session import CompiledStatements, Session, Shared
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.cluster.takeovers import race
from tests.support.processes import HOURS, PATIENCE, until

TTL = 1.0

_ROW = "name = :name AND epoch = :epoch AND token_digest = :digest"


def by_select(connection: Connection, lease: LeaseClaim) -> bool:
    """The fence that many use: look whether the lease is still mine."""
    found = connection.execute(text(f"SELECT epoch FROM leases WHERE {_ROW}"), _mine(lease))
    return found.first() is not None


def by_update(connection: Connection, lease: LeaseClaim) -> bool:
    """The fence that we use: the very statement of the store's."""
    mine = {f"_{name}": value for name, value in _mine(lease).items()}
    return connection.execute(leases._TOUCH, mine).rowcount == 1


def _mine(lease: LeaseClaim) -> dict[str, Any]:
    return {"name": lease.name, "epoch": lease.epoch, "token": lease.token, "digest": _digest(lease.token)}


class OldLeader:
    """A leader's transaction, step by step, on a connection of its own."""

    def __init__(self, engine: Engine, lease: LeaseClaim) -> None:
        self.connection = engine.connect()
        self.lease = lease
        clock = time.time if engine.dialect.name == "sqlite" else None
        database = database_of(engine.dialect.name)
        shared = Shared(
            dialect=engine.dialect,
            send=database.send,
            statements=CompiledStatements(engine),
            clock=clock,
            monotonic=time.monotonic,
            memory=Memory(SystemClock()),
        )
        self._session = Session(shared, self.connection, database.opening(True, True, True))
        self._session.flush()

    def write(self) -> int:
        """Write as a leader; return how many rows."""
        done = self.connection.execute(text("UPDATE nodes SET name = 'written by the old leader'"))
        return int(done.rowcount)

    def write_where_still_mine(self) -> int:
        """The same with the look in the statement itself, as an EXISTS."""
        condition = f"EXISTS (SELECT 1 FROM leases WHERE {_ROW})"
        statement = f"UPDATE nodes SET name = 'written by the old leader' WHERE {condition}"
        return int(self.connection.execute(text(statement), _mine(self.lease)).rowcount)

    def commit(self) -> None:
        self.end()
        self.connection.close()

    def end(self) -> None:
        self._session.end((COMMIT,))

    def roll_back(self) -> None:
        executor.rollback(self.connection)
        self.connection.close()


def _store(url: str, engine: Engine) -> Store:
    settings = DatabaseSettings(connection=url)
    return Store(engine, settings=settings, bus=LocalBus(), clock=SystemClock(), stop=threading.Event())


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = build_engine(DatabaseSettings(connection=database_url))
    yield engine
    engine.dispose()


@pytest.fixture
def store(database_url: str, engine: Engine) -> Store:
    store = _store(database_url, engine)
    node = examples.node(name="untouched")
    store.write(lambda tx: tx.nodes.add(node))
    return store


def _lead(store: Store, holder: str, seconds: float = TTL) -> LeaseClaim:
    return store.write(lambda tx: tx.leases.acquire("backup", holder, seconds))


def _take_over(store: Store) -> LeaseClaim:
    """Win the lease as soon as the old lease has expired."""
    taken: list[LeaseClaim] = []

    def took_over() -> bool:
        with contextlib.suppress(LeaseHeldError, StoreError):
            taken.append(_lead(store, "successor", HOURS))
        return bool(taken)

    assert until(took_over), "nobody took over"
    return taken[0]


def _name(store: Store) -> str | None:
    (name,) = store.read(lambda tx: tx.connection.execute(text("SELECT name FROM nodes")).scalars().all())  # type: ignore[attr-defined]
    return str(name)


@pytest.mark.parametrize("database", ["postgresql", "mariadb"])
@pytest.mark.parametrize("look", ["select", "exists"])
def test_a_look_at_the_lease_is_no_fence(request: pytest.FixtureRequest, database: str, look: str) -> None:
    url = request.getfixturevalue(f"{database}_url")
    engine = build_engine(DatabaseSettings(connection=url))
    store = _store(url, engine)
    store.write(lambda tx: tx.nodes.add(examples.node(name="untouched")))
    old = OldLeader(engine, _lead(store, "old"))
    try:
        if look == "select":
            assert by_select(old.connection, old.lease)
            assert old.write() == 1
        else:
            assert old.write_where_still_mine() == 1
        successor = _take_over(store)
        assert successor.epoch == old.lease.epoch + 1
        assert _name(store) == "untouched"
        old.commit()  # the stale write: a newer epoch has been issued, and it counts all the same
        assert _name(store) == "written by the old leader"
    finally:
        engine.dispose()


def test_the_fence_keeps_the_takeover_waiting_until_the_old_write_is_in(store: Store, engine: Engine) -> None:
    old = OldLeader(engine, _lead(store, "old"))
    assert by_update(old.connection, old.lease)
    assert old.write() == 1
    events: list[object] = []
    successor = threading.Thread(target=lambda: events.append(_take_over(store)))
    successor.start()
    time.sleep(TTL + 0.7)  # the lease has expired, and the successor stands at the door
    events.append("commits")
    old.commit()
    successor.join(PATIENCE)
    first, taken = events
    assert first == "commits"
    assert isinstance(taken, LeaseClaim)
    assert taken.epoch == old.lease.epoch + 1
    assert _name(store) == "written by the old leader"  # in its own epoch, before the next was issued


def test_an_old_leader_that_fences_too_late_writes_nothing(store: Store, engine: Engine) -> None:
    lease = _lead(store, "old", -0.001)
    old_connection_is_idle = OldLeader(engine, lease) if engine.dialect.name != "sqlite" else None
    _take_over(store)
    old = old_connection_is_idle or OldLeader(engine, lease)
    assert not by_update(old.connection, lease)
    old.roll_back()
    assert _name(store) == "untouched"


def test_no_stale_write_in_many_takeovers(database_url: str) -> None:
    found = race(database_url, 60)
    print(f"{database_url.partition(':')[0]}: {found}")
    assert (found.rounds, found.stale) == (60, 0)
    assert found.refused > 0


def test_a_session_timeout_below_the_time_to_live_is_set_on_every_connection(server_url: str) -> None:
    settings = DatabaseSettings(connection=server_url, statement_timeout=2.0)
    engine = build_engine(settings)
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            found = {name: connection.execute(text(f"SHOW {name}")).scalar() for name in names}
            assert found == dict.fromkeys(names, "2s")
        else:
            names = ("max_statement_time", "innodb_lock_wait_timeout", "idle_transaction_timeout")
            found = {name: float(connection.execute(text(f"SELECT @@SESSION.{name}")).scalar()) for name in names}
            assert found == dict.fromkeys(names, 2.0)
    engine.dispose()
    assert msgspec.structs.replace(settings).statement_timeout < 3.0


def test_a_leader_stopped_in_its_fenced_transaction_blocks_the_takeover_no_longer_than_its_session(
    server_url: str,
) -> None:
    # A stopped process is silent: here it is a transaction that was fenced and says nothing more.
    limit = 2.0
    engine = build_engine(DatabaseSettings(connection=server_url, statement_timeout=limit))
    store = _store(server_url, engine)
    store.write(lambda tx: tx.nodes.add(examples.node(name="untouched")))
    old = OldLeader(engine, _lead(store, "old"))
    assert by_update(old.connection, old.lease)
    assert old.write() == 1
    successor = _take_over(store)
    assert successor.epoch == old.lease.epoch + 1
    assert _name(store) == "untouched"  # its session was ended, and its write undone
    with pytest.raises(Exception, match=r".") as refused:
        old.end()
    assert classify(refused.value) == "unavailable"  # type: ignore[arg-type]
    old.connection.invalidate()
    old.connection.close()
    assert _name(store) == "untouched"
    engine.dispose()
