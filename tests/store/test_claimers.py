"""Several threads that claim from one queue; apart, because the simulated database has one thread."""

from __future__ import annotations

import threading

from ferroscope.core.model import Request
from ferroscope.core.states import Event
from tests.store.conftest import Open
from tests.support.processes import HOURS, PATIENCE


def test_a_claimer_that_finds_nothing_does_not_hold_up_another(open_adapter: Open) -> None:
    """A claim may find nothing although there is something: what another thread is about to claim is locked."""
    adapter = open_adapter(poll_seconds=HOURS)
    adapter.join("worker", ttl=HOURS)
    nodes = {adapter.node().uuid for _ in range(60)}
    for node in sorted(nodes):
        adapter.put(Request(node=node, event=Event.INSPECT))
    claimed: list[str] = []

    def claim() -> None:
        while len(claimed) < len(nodes):
            if (found := adapter.claim("worker", HOURS)) is not None:
                claimed.append(found.request.node)
                adapter.write(lambda tx, found=found: tx.requests.consume(found))  # type: ignore[misc]
        adapter.stop.set()
        adapter.bus.publish("requests")

    threads = [threading.Thread(target=claim) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert (len(claimed), set(claimed)) == (len(nodes), nodes)
