"""Events on OpenStack's notification bus, received by the listener of the real oslo.messaging."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ferroscope.config.messaging_options import NotificationSettings, RabbitmqTarget, parse_url
from ferroscope.contracts.remote import SendError
from ferroscope.contracts.telemetry import SILENT
from ferroscope.contrib.openstack.notifications import PUBLISHED, VersionedNotifications
from ferroscope.core.notification import EventType, OutboxEvent
from ferroscope.db import Transaction
from ferroscope.periodic.notifications import Notifications
from ferroscope.remote.rabbitmq import AmqpConnection
from ferroscope.runtime.system import SystemClock
from tests.support import examples
from tests.support.notification_listener import Listener
from tests.support.processes import free_port, until
from tests.support.servers import Server
from tests.support.stores import open_store


def target(url: str, topic: str, **fields: Any) -> RabbitmqTarget:
    return RabbitmqTarget(name="cloud", url=url, topic=topic, **fields)


def event(kind: EventType = EventType.FINISHED, **data: Any) -> OutboxEvent:
    node = examples.uuid()
    return OutboxEvent(
        target="cloud",
        event=examples.uuid(),
        type=kind,
        node=node,
        data={"node": {"uuid": node, "name": "räck-1"}, **data},
        at=1_700_000_000.25,
    )


@pytest.fixture
def sender(shared_rabbitmq: Server) -> Iterator[Callable[..., VersionedNotifications]]:
    made: list[VersionedNotifications] = []

    def make(topic: str, **fields: Any) -> VersionedNotifications:
        made.append(VersionedNotifications(target(shared_rabbitmq.url(""), topic, **fields), host="host-1"))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Leads:
    """A leadership that lasts."""

    def fence(self, tx: Transaction) -> None: ...

    def keep_alive(self) -> None: ...


def test_a_listener_of_oslo_messaging_gets_each_type_with_its_priority_and_payload(
    shared_rabbitmq: Server, sender: Callable[..., VersionedNotifications], tmp_path: Path
) -> None:
    topic = examples.uuid()
    sent = [event(kind, inspection={"uuid": "i1", "reason": "timeout"}) for kind in EventType]
    notifications = sender(topic)
    for one in sent:  # before there is any listener
        notifications.send(one)
    listener = Listener(tmp_path, shared_rabbitmq.url(""), topic=topic)
    assert until(lambda: len(listener.notifications()) == len(sent)), listener.notifications()
    listener.kill()
    found = {note["message_id"]: note for note in listener.notifications()}
    for one in sent:
        note = found[one.event]
        assert (note["type"], note["level"]) == PUBLISHED[one.type]
        assert note["publisher"] == "ferroscope.host-1"
        assert note["timestamp"] == "2023-11-14 22:13:20.250000"
        assert note["payload"]["ironic_object.data"] == {
            "uuid": one.node,
            "name": "räck-1",
            "event": one.type,
            "inspection": {"uuid": "i1", "reason": "timeout"},
        }


def test_a_listener_that_is_killed_at_random_misses_nothing_and_its_pool_sees_each_node_in_order(
    shared_rabbitmq: Server, tmp_path: Path
) -> None:
    topic, url = examples.uuid(), shared_rabbitmq.url("")
    text = f'{{"name": "cloud", "url": "{url}", "topic": "{topic}"}}'
    settings = NotificationSettings(target=(text,))
    store = open_store(clock=SystemClock(), subscriptions=settings.subscriptions())
    senders = {"cloud": VersionedNotifications(target(url, topic), host="h")}
    task = Notifications(store, senders, clock=SystemClock(), meter=SILENT, period=0.05)
    listener = Listener(tmp_path, url, topic=topic, pool=f"pool-{topic}")
    nodes = [examples.node() for _ in range(20)]
    kinds = (EventType.CREATED, EventType.WAITING, EventType.DELETED)
    ended = threading.Event()

    def kill() -> None:
        rng = random.Random(4)
        while not ended.wait(rng.uniform(0.1, 0.5)):
            listener.kill()
            listener.start()

    def pending() -> int:
        return sum(one.state == "pending" for one in store.read(lambda tx: tx.outbox.list(limit=1000)))

    killer = threading.Thread(target=kill)
    killer.start()
    with closing(senders["cloud"]), closing(task):
        try:
            for number in range(10):
                for node in nodes:
                    store.write(lambda tx, node=node, number=number: tx.outbox.add(kinds[number % 3], node))  # type: ignore[misc]
                task.step(Leads())
            assert until(lambda: bool(task.step(Leads())) and pending() == 0)
        finally:
            ended.set()
            killer.join()
            listener.kill()  # it would die with the thread that has started it
        written = sorted(store.read(lambda tx: tx.outbox.list(limit=1000)), key=lambda one: one.id)
        assert {one.state for one in written} == {"delivered"}
        listener.start()
        try:
            assert until(lambda: len({note["message_id"] for note in listener.notifications()}) == len(written))
        finally:
            listener.kill()
    known: set[str] = set()
    seen: dict[str, list[str]] = {}
    for note in listener.notifications():
        if note["message_id"] not in known:
            known.add(note["message_id"])
            seen.setdefault(note["payload"]["ironic_object.data"]["uuid"], []).append(note["message_id"])
    assert seen == {node.uuid: [one.event for one in written if one.node == node.uuid] for node in nodes}


def test_a_queue_with_other_properties_or_without_rights_is_an_error_that_is_retried(
    shared_rabbitmq: Server, sender: Callable[..., VersionedNotifications]
) -> None:
    topic = examples.uuid()
    sender(topic, queues="durable", exchange=topic).send(event())
    quorum = sender(topic, exchange=topic)
    assert "406" not in failure(quorum)
    host = f"u:secret-word@127.0.0.1:{shared_rabbitmq.port}"
    assert "secret-word" not in failure(VersionedNotifications(target(f"rabbit://{host}/", topic), host="h"))


def test_a_queue_that_was_deleted_is_declared_again(
    shared_rabbitmq: Server, sender: Callable[..., VersionedNotifications]
) -> None:
    topic = examples.uuid()
    notifications = sender(topic)
    notifications.send(event())
    broker = parse_url(shared_rabbitmq.url(""))
    connection = AmqpConnection(broker, broker.hosts[0], name="test")
    connection.call(lambda channel: channel.queue_delete(f"{topic}.info"))
    failure(notifications)
    notifications.send(event())
    assert connection.call(lambda channel: channel.queue_declare(f"{topic}.info", passive=True)).message_count == 1
    connection.close()


def test_a_broker_that_is_down_is_an_error_that_is_retried() -> None:
    dead = VersionedNotifications(target(f"rabbit://127.0.0.1:{free_port()}/", "t", timeout=0.5), host="h")
    failure(dead)


def failure(sender: VersionedNotifications) -> str:
    with pytest.raises(SendError) as error:
        sender.send(event())
    assert error.value.unreachable
    assert not error.value.refused
    return str(error.value)
