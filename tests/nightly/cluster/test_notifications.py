"""A consumer that ignores IDs that it knows misses no event, and sees each node's in order, whatever is killed."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from ferroscope.config.options import DatabaseSettings, Settings
from ferroscope.core.notification import OutboxEvent
from ferroscope.runtime.backend import open_for_command
from tests.support.cluster.audit import audit
from tests.support.cluster.chaos import FAST
from tests.support.cluster.cluster import Cluster, Plan
from tests.support.cluster.faults import FaultInjector
from tests.support.cluster.operator import Operator
from tests.support.consumer import SECRET, Consumer
from tests.support.processes import free_port, until

MOODS = (*["ok"] * 12, "500", "429", "slow", "slow", "half", "silent")


class Restless(threading.Thread):
    """Kills or freezes the consumer until ``end`` is called."""

    def __init__(self, consumer: Consumer, seed: int) -> None:
        super().__init__(daemon=True)
        self._consumer = consumer
        self._rng = random.Random(seed)
        self._ending = threading.Event()
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        kinds = itertools.cycle(("killed", "frozen", "killed"))
        while not self._ending.wait(self._rng.uniform(0.3, 1.2)):
            kind = next(kinds)
            if kind == "killed":
                self._consumer.kill()
                self._ending.wait(self._rng.uniform(0.0, 0.5))
                self._consumer.start()
            else:
                self._consumer.freeze()
                self._ending.wait(1.5)
                self._consumer.thaw()
            self.done[kind] += 1

    def end(self) -> None:
        self._ending.set()
        self.join(90)


def options(tmp_path: Path, consumer: Consumer, calm: Consumer, dead: int) -> str:
    secret = tmp_path / "webhook-secret"
    secret.write_text(SECRET)
    common = f'"secret": "{secret}", "timeout": 1.0'
    return (
        "[notifications]\n"
        f'target = {{"name": "restless", "url": "{consumer.url}", {common}}}\n'
        f'target = {{"name": "calm", "url": "{calm.url}", {common}, "events": ["inspection.*"]}}\n'
        f'target = {{"name": "dead", "url": "http://127.0.0.1:{dead}/", {common}}}\n'
    )


def first_seen(events: list[dict[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """Return what a consumer sees that ignores known IDs: by node, type and ID of its events in order."""
    known: set[str] = set()
    found: dict[str, list[tuple[str, str]]] = {}
    for event in events:
        if event["id"] not in known:
            known.add(event["id"])
            found.setdefault(event["subject"], []).append((event["type"].removeprefix("ferroscope."), event["id"]))
    return found


def written(events: list[OutboxEvent]) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for event in sorted(events, key=lambda event: event.id):
        found.setdefault(event.node, []).append((event.type, event.event))
    return found


def test_no_event_is_missed_while_consumer_workers_and_leaders_are_killed(server_url: str, tmp_path: Path) -> None:
    restless, calm = Consumer(tmp_path, *MOODS), Consumer(tmp_path)
    plan = Plan(nodes=20, workers=2, options=FAST + options(tmp_path, restless, calm, free_port()))
    settings = Settings(database=DatabaseSettings(connection=server_url))
    with Cluster(tmp_path, server_url, plan) as cluster, open_for_command(settings) as backend:

        def stored(target: str) -> list[OutboxEvent]:
            return list(backend.store.read(lambda tx: tx.outbox.list(limit=100_000, target=target)))

        def settled(target: str) -> bool:
            tallies = backend.store.read(lambda tx: tx.outbox.tallies())
            return {one.state for one in tallies if one.target == target} == {"delivered"}

        operator, chaos = Operator(cluster, rounds=None), Restless(restless, 5)
        injector = FaultInjector(cluster, seed=4, silence=0)
        operator.start()
        chaos.start()
        for kill in (*[injector.kill_worker] * 4, *[injector.kill_leader] * 2):
            injector.pause(0.5, 1.5)
            kill()
        assert until(lambda: chaos.done["killed"] >= 2)
        operator.finish()
        operator.done()
        chaos.end()
        restless.kill()  # it would die with the thread that has started it
        restless.start()
        found = audit(cluster, operator)
        assert found.violations == []
        # A target that is killed, and one that is dead, have not held up the calm one.
        assert until(lambda: settled("calm")), Counter(event.state for event in stored("calm"))
        assert until(lambda: settled("restless")), Counter(event.state for event in stored("restless"))
        everything, inspections = stored("restless"), stored("calm")
        waiting = Counter(event.state for event in stored("dead"))
        endings = Counter(event.type for event in inspections)
    restless.kill()
    calm.kill()
    seen = restless.events()
    print(
        f"{len(everything)} events, {len(seen)} received, {found.finished} finished; "
        f"consumer {dict(chaos.done)}; {dict(endings)}"
    )
    assert not [event for event in seen + calm.events() if event["bad"]]
    assert first_seen(seen) == written(everything)
    assert first_seen(calm.events()) == written(inspections)
    assert endings["inspection.finished"] == found.finished
    assert endings["inspection.started"] == sum(
        endings[f"inspection.{end}"] for end in ("finished", "failed", "aborted")
    )
    assert waiting == {"pending": len(everything)}
