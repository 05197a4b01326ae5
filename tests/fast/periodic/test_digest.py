"""The digest goes into the outbox once a day, for the targets that get all nodes and ask for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from ferroscope.core.digest import DAY
from ferroscope.core.notification import Subscription
from ferroscope.periodic.digest import Digests
from tests.support.manual_clock import ManualClock
from tests.support.stores import open_store

SEVEN = 7 * 3600.0
SUBSCRIPTIONS = [
    Subscription(target="mail", events=("digest",)),
    Subscription(target="all"),
    Subscription(target="lab", nodes={"owner": "lab"}),
    Subscription(target="failures", events=("inspection.failed",)),
]


def test_each_day_is_reported_once_also_by_another_leader_and_late() -> None:
    clock = ManualClock()
    clock.now = 20_000 * DAY + SEVEN + 60
    store = open_store(clock=clock, subscriptions=SUBSCRIPTIONS)
    leadership: Any = SimpleNamespace(fence=lambda _tx: None, keep_alive=lambda: None)

    def told() -> list[str]:
        Digests(store, at=SEVEN).step(leadership)
        return sorted(one.target for one in store.read(lambda tx: tx.outbox.list(limit=99)))

    assert told() == []  # it has just been switched on
    clock.now += DAY - 120
    assert told() == []
    clock.now += 120
    assert told() == ["all", "mail"]
    assert told() == ["all", "mail"]
    clock.now += 3 * DAY  # nobody ran: of the days in between, only the last one is told
    assert told() == ["all", "all", "mail", "mail"]
    (event, *_) = store.read(lambda tx: tx.outbox.list(limit=1))
    assert (event.type, event.node, event.data["digest"]["until"][:4]) == ("digest", "", "2024")
