"""What is written into the outbox, and how the periodic task delivers it, with a real service and real webhooks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from ferroscope.config.options import DiscoverySettings, NotificationSettings
from ferroscope.contracts.telemetry import SILENT
from ferroscope.contrib.ui import fleet
from ferroscope.core.notification import EventType, OutboxEvent, OutboxState
from ferroscope.db import Transaction
from ferroscope.periodic.notifications import Notifications
from ferroscope.periodic.retention import Retention
from ferroscope.remote.webhook import Webhook
from ferroscope.runtime.system import SystemClock
from ferroscope.telemetry.metrics import Metrics
from ferroscope_client.core.reasons import Reason
from tests.api.browsing import Browser
from tests.api.service import Service, callback_body
from tests.api.working import worker
from tests.support import examples
from tests.support.http_target import HttpTarget
from tests.support.manual_clock import ManualClock
from tests.support.processes import until
from tests.support.stores import open_store


class Site:
    """A service and its worker, one step at a time, with one target that gets everything."""

    def __init__(self, url: str, **sections: Any) -> None:
        settings = NotificationSettings(target=('{"name": "t", "url": "http://127.0.0.1:9/"}',))
        self.meter = Metrics(CollectorRegistry())
        self.service = Service(url, sections={"notifications": settings, **sections}, meter=self.meter)
        self.service.store.write(lambda tx: tx.members.beat(examples.member("w"), 600.0))
        self.worker = worker(self.service)
        self.mac = examples.mac()
        self.node = self.service.enrol(name="one", owner="lab")
        self.service.bare_metal.post("/v1/ports", {"node_ident": self.node, "address": self.mac})
        self.provision("manage")
        self.worker.step()

    def provision(self, target: str) -> None:
        answer = self.service.bare_metal.put(f"/v1/nodes/{self.node}/states/provision", {"target": target})
        assert answer.status_code == 202, answer.text

    def inspect(self, body: Any = None) -> None:
        self.provision("inspect")
        self.worker.step()
        answer = self.service.bare_metal.post("/v1/continue_inspection", body or callback_body(self.mac))
        assert answer.status_code == 202, answer.text
        self.worker.step()

    def events(self) -> list[OutboxEvent]:
        return list(self.service.store.read(lambda tx: tx.outbox.list(limit=100)))[::-1]

    def types(self) -> list[str]:
        return [event.type for event in self.events()]


@pytest.fixture
def site(sqlite_url: str) -> Iterator[Site]:
    found = Site(sqlite_url)
    yield found
    found.service.close()


def test_each_step_of_an_inspection_is_an_event(site: Site) -> None:
    site.inspect()
    created, started, waiting, finished = site.events()
    kinds = [EventType.CREATED, EventType.STARTED, EventType.WAITING, EventType.FINISHED]
    assert [event.type for event in (created, started, waiting, finished)] == kinds
    assert created.data["node"] | {"owner": "lab", "name": "one", "uuid": site.node} == created.data["node"]
    assert {event.data["inspection"]["uuid"] for event in (started, waiting, finished)} == {
        site.service.node(site.node).inspection
    }
    assert finished.data["node"]["provision_state"] == "manageable"
    assert finished.data["inspection"]["finished_at"] is not None


def test_a_failure_has_its_reason_code_and_an_abort_is_another_type(site: Site) -> None:
    site.inspect(callback_body(site.mac) | {"error": "the ramdisk failed"})
    site.worker.step()
    failed = site.events()[-1]
    assert (failed.type, failed.data["inspection"]["reason"]) == (EventType.FAILED, Reason.RAMDISK_ERROR)
    site.provision("inspect")
    site.worker.step()
    site.provision("abort")
    site.worker.step()
    assert site.types()[-3:] == [EventType.STARTED, EventType.WAITING, EventType.ABORTED]


def test_an_inspection_that_another_one_replaces_has_failed(site: Site) -> None:
    site.provision("inspect")
    site.worker.step()
    assert site.service.introspection.post(f"/v1/introspection/{site.node}").status_code == 202
    waiting, failed, started = site.events()[-3:]
    assert [event.type for event in (waiting, failed, started)] == [
        EventType.WAITING,
        EventType.FAILED,
        EventType.STARTED,
    ]
    assert failed.data["inspection"]["reason"] == Reason.RESTARTED
    assert failed.data["inspection"]["uuid"] == waiting.data["inspection"]["uuid"]
    assert failed.data["inspection"]["uuid"] != started.data["inspection"]["uuid"]


def test_changed_hardware_is_on_the_fleet_page_also_if_no_target_wants_it(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "_CHART_SECONDS", 0.1)
    site = Site(sqlite_url, notifications=NotificationSettings())
    try:
        for _ in range(2):
            site.inspect()
        assert "No inspection has found changed hardware" in Browser(site.service).get("/ui").text
        site.inspect(callback_body(site.mac, serial="2"))
        later = Browser(site.service)
        assert until(lambda: "machine: serial 1 -&gt; 2" in later.get("/ui").text)
        page = later.get("/ui").text
        assert (
            f'href="/ui/machines/{site.node}?tab=history&amp;after={site.service.node(site.node).inspection}"' in page
        )
        assert "machine: serial 1 -&gt; 2" in later.get(f"/ui/machines/{site.node}?tab=timeline").text
    finally:
        site.service.close()


def test_changed_hardware_is_an_event_with_its_differences_before_the_end(site: Site) -> None:
    site.inspect()
    site.inspect()
    assert EventType.HARDWARE_CHANGED not in site.types()
    body = callback_body(site.mac)
    body["inventory"]["memory"] = {"physical_mb": 123_456, "total": 123_456 * 2**20}
    site.inspect(body)
    changed, finished = site.events()[-2:]
    assert (changed.type, finished.type) == (EventType.HARDWARE_CHANGED, EventType.FINISHED)
    assert changed.data["changes_total"] == len(changed.data["changes"]) > 0
    assert "memory" in changed.data["changes"][0]["text"]
    labels = {"kind": "node", "what": "changed"}
    counted = site.meter.registry.get_sample_value("ferroscope_hardware_changes_total", labels)
    assert counted == changed.data["changes_total"]
    assert changed.data["inspection"]["uuid"] == finished.data["inspection"]["uuid"]


def test_the_deletion_of_a_node_is_its_last_event(site: Site) -> None:
    assert site.service.bare_metal.delete(f"/v1/nodes/{site.node}").status_code == 204
    assert site.types() == [EventType.CREATED, EventType.DELETED]


def test_a_machine_that_was_unknown_is_discovered_and_not_created(sqlite_url: str) -> None:
    discovery = DiscoverySettings(enabled=True, driver="fake-hardware")
    site = Site(sqlite_url, auto_discovery=discovery)
    answer = site.service.bare_metal.post("/v1/continue_inspection", callback_body(examples.mac()))
    assert answer.status_code == 202, answer.text
    found = [event for event in site.events() if event.node != site.node]
    assert found[0].type == EventType.DISCOVERED
    assert EventType.CREATED not in {event.type for event in found}
    assert found[0].data["node"]["uuid"] == found[0].node
    site.service.close()


# The periodic task


class Leads:
    """A leadership that lasts, until ``lost`` is raised by its fence."""

    lost: Exception | None = None

    def fence(self, tx: Transaction) -> None:
        if self.lost is not None:
            raise self.lost

    def keep_alive(self) -> None: ...


class Post:
    """A store with targets at real consumers, and the task that serves them; time passes only in ``pass_time``."""

    def __init__(self, consumers: dict[str, str], **options: Any) -> None:
        texts = [json.dumps({"name": name, "url": url, "timeout": 2.0}) for name, url in consumers.items()]
        self.settings = NotificationSettings(target=tuple(texts))
        webhooks = self.settings.targets()
        self.clock = ManualClock()
        self.store = open_store(clock=self.clock, subscriptions=self.settings.subscriptions())
        senders = {one.name: Webhook(one, source="/test") for one in webhooks}
        self.task = Notifications(self.store, senders, clock=self.clock, meter=SILENT, **options)
        self.leads = Leads()

    def add(self, *nodes: str) -> None:
        for node in nodes:
            one = examples.node(uuid=f"{node:-<36}", name=node)
            self.store.write(lambda tx, one=one: tx.outbox.add(EventType.WAITING, one))  # type: ignore[misc]

    def step(self) -> str:
        return self.task.step(self.leads)

    def pass_time(self, seconds: float) -> str:
        self.clock.now += seconds
        return self.step()

    def states(self, target: str) -> list[OutboxState]:
        found = self.store.read(lambda tx: tx.outbox.list(limit=1000, target=target))
        return [event.state for event in found][::-1]


@pytest.fixture
def consumers() -> Iterator[Sequence[HttpTarget]]:
    with HttpTarget() as one, HttpTarget() as other:
        yield one, other


def names(consumer: HttpTarget) -> list[str]:
    return [json.loads(body)["data"]["node"]["name"] for _, _, body in consumer.seen]


def test_a_dead_target_holds_up_no_other_and_gets_everything_when_it_is_back(consumers: Sequence[HttpTarget]) -> None:
    good, bad = consumers
    bad.statuses = [503]
    post = Post({"good": good.url, "bad": bad.url})
    post.add(*(f"n{number}" for number in range(30)))
    for _ in range(5):
        status = post.pass_time(0.6)
    assert post.states("good") == ["delivered"] * 30
    assert "down: bad" in status
    assert len(bad.seen) < 30
    tried = len(bad.seen)
    for _ in range(20):
        post.pass_time(60.0)
    assert len(bad.seen) - tried <= 20  # one at a time
    assert post.task.problem is not None
    assert post.task.problem.code == "notification-target-down"
    bad.statuses = [204]
    for _ in range(12):
        post.pass_time(61.0)
    assert post.states("bad") == ["delivered"] * 30
    assert post.task.problem is None


def test_an_event_that_is_refused_is_a_dead_letter_and_the_next_one_is_sent(consumers: Sequence[HttpTarget]) -> None:
    consumer, _ = consumers
    consumer.statuses = [422]
    post = Post({"t": consumer.url})
    post.add("n1")
    post.step()
    consumer.statuses = [204]
    post.add("n1")
    post.pass_time(1.0)
    assert post.states("t") == ["dead", "delivered"]
    (dead,) = post.store.read(lambda tx: tx.outbox.list(limit=10, state="dead"))
    assert (dead.error, dead.attempts) == ("HTTP 422", 1)
    post.store.write(lambda tx: tx.outbox.redeliver([dead.id]))
    post.pass_time(1.0)
    assert post.states("t") == ["delivered", "delivered"]


def test_later_events_of_a_node_wait_for_a_failed_one_and_those_of_others_do_not(
    consumers: Sequence[HttpTarget],
) -> None:
    consumer, _ = consumers
    consumer.poison = b'"poison"'
    post = Post({"t": consumer.url}, retry_for=100.0)
    post.add("poison", "poison")
    post.step()
    for number in range(5):
        post.add(f"n{number}")
        post.pass_time(0.6)
    assert post.states("t") == ["pending", "pending", *["delivered"] * 5]
    consumer.poison = b""
    for _ in range(2):
        post.pass_time(60.0)
    assert post.states("t") == ["delivered"] * 7


def test_an_event_that_alone_fails_for_long_is_given_up(consumers: Sequence[HttpTarget]) -> None:
    consumer, _ = consumers
    consumer.poison = b'"poison"'
    post = Post({"t": consumer.url}, retry_for=100.0)
    post.add("poison")
    for _ in range(5):
        post.pass_time(60.0)
    assert post.states("t") == ["dead"]


def test_results_that_could_not_be_recorded_are_recorded_later(consumers: Sequence[HttpTarget]) -> None:
    consumer, _ = consumers
    post = Post({"t": consumer.url})
    post.add("n1", "n1")
    post.leads.lost = RuntimeError("lost")
    with pytest.raises(RuntimeError):
        post.step()
    post.leads.lost = None
    post.pass_time(1.0)
    post.pass_time(1.0)
    assert post.states("t") == ["delivered", "delivered"]
    assert len(consumer.seen) == 2


def test_what_nobody_fetches_is_bounded(consumers: Sequence[HttpTarget]) -> None:
    consumer, _ = consumers
    consumer.statuses = [503]
    post = Post({"t": consumer.url}, max_pending=100)
    post.add(*(f"n{number}" for number in range(120)))
    post.pass_time(11.0)
    states = post.states("t")
    assert states == ["dead"] * 20 + ["pending"] * 100
    retention = Retention(post.store, threshold=0.0, events=(1.0, 50.0), period=1.0, clock=SystemClock())
    post.clock.now += 60.0
    retention.step(post.leads)
    assert post.states("t") == []
