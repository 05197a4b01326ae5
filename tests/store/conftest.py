"""The store and the queue under test, on each of the databases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import msgspec
import pytest

from ferroscope.config.options import DatabaseSettings, LeaseSettings, NotificationSettings, Settings
from ferroscope.contracts.store import Bus
from ferroscope.core.model import Claim, Member, Node, Request
from ferroscope.db import Queue, Store, Transaction
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.processes import PATIENCE
from tests.support.stores import claim_from

T = TypeVar("T")


class Adapter:
    """A store and its queue, as one process sees them, and short words for what tests do with them."""

    def __init__(self, store: Store, queue: Queue, bus: Bus, stop: threading.Event) -> None:
        self.store = store
        self.queue = queue
        self.bus = bus
        self.stop = stop

    def write(self, work: Callable[[Transaction], T]) -> T:
        return self.store.write(work)

    def read(self, work: Callable[[Transaction], T]) -> T:
        return self.store.read(work)

    def node(self, **fields: Any) -> Node:
        """Store a new node and return it as it is stored."""
        fresh = examples.node(**fields)
        self.write(lambda tx: tx.nodes.add(fresh))
        return self.get(fresh.uuid)

    def get(self, ident: str) -> Node:
        return self.read(lambda tx: tx.nodes.get(ident))

    def put(self, request: Request) -> None:
        self.write(lambda tx: tx.requests.put(request))

    def pending(self, node: Node) -> list[Request]:
        return list(self.read(lambda tx: tx.requests.pending(node.uuid)))

    def join(self, ident: str, *, ttl: float = 60.0) -> None:
        """Announce a member; with a ``ttl`` of 0 it is dead at once."""
        self.write(lambda tx: tx.members.beat(examples.member(ident), ttl))

    def members(self) -> dict[str, Member]:
        return {member.id: member for member in self.read(lambda tx: tx.members.list())}

    def expire(self, before: float) -> int:
        """Delete the inspections that ended before this time, as retention does; return their number."""
        old = self.read(lambda tx: tx.inspections.find_ended(before, None, 100))
        return self.write(lambda tx: tx.inspections.remove(old.keys))

    def claim(self, holder: str, timeout: float = 0.0) -> Claim | None:
        return claim_from(self.queue, holder, timeout, self.stop)

    def must_claim(self, holder: str, timeout: float = PATIENCE) -> Claim:
        claim = self.claim(holder, timeout)
        assert claim is not None, "there should have been a request to claim"
        return claim


Open = Callable[..., Adapter]


@pytest.fixture
def open_adapter(database_kind: str, request: pytest.FixtureRequest) -> Iterator[Open]:
    """Give a function that opens the same store once more, as another process would.

    Its options are ``poll_seconds`` and those of ``[database]``.
    """
    with ExitStack() as stack:
        yield stores(stack, request.getfixturevalue(f"{database_kind}_url"))


@pytest.fixture
def adapter(open_adapter: Open) -> Adapter:
    """Return a store and its queue."""
    return open_adapter()


def stores(stack: ExitStack, url: str) -> Open:
    """Return a function like ``open_adapter``; a ``statement_timeout`` counts, whatever leases last."""

    def open_sql(notifications: NotificationSettings | None = None, **options: Any) -> Adapter:
        poll_seconds = options.pop("poll_seconds", 0.05)
        database = msgspec.structs.replace(DatabaseSettings(connection=url), **options)
        stop = threading.Event()
        lease = LeaseSettings(profile="custom", ttl=3600.0) if "statement_timeout" in options else LeaseSettings()
        settings = Settings(database=database, lease=lease, notifications=notifications or NotificationSettings())
        backend = open_backend(settings, clock=SystemClock(), stop=stop, listen=False, poll_seconds=poll_seconds)
        stack.callback(backend.close)
        return Adapter(backend.store, backend.queue, backend.bus, stop)

    return open_sql
