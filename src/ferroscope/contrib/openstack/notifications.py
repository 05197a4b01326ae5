"""Sends events to OpenStack's notification bus, as the driver ``messagingv2`` of oslo.messaging does.

A message is an envelope (``oslo.version`` 2.0) around a notification with ``event_type``, ``priority`` and ``payload``.
It goes to a topic exchange with the routing key ``TOPIC.PRIORITY``, and so to the queue of that name, which exists
before a consumer does. The broker confirms when it has stored the message, in a quorum queue on a majority of nodes.
"""

from __future__ import annotations

import queue
import time
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from ferroscope.config.messaging_options import RabbitmqTarget
from ferroscope.contracts.remote import SendError
from ferroscope.core.notification import EventType, OutboxEvent
from ferroscope.remote.rabbitmq import AmqpConnection, BrokerError, BrokerHosts, check_files

_DELIVERY_MODE_PERSISTENT: Final = 2
_VERSION: Final = "1.0"


class Published(NamedTuple):
    """The type and the priority of an event on the notification bus."""

    event_type: str
    priority: str = "info"


# Like the types of Ironic: baremetal.OBJECT.ACTION.STATUS; the status is start, end, error or success.
PUBLISHED: Final[dict[str, Published]] = {
    EventType.STARTED: Published("baremetal.node.inspect.start"),
    EventType.WAITING: Published("baremetal.node.inspect_wait.success"),
    EventType.FINISHED: Published("baremetal.node.inspect.end"),
    EventType.FAILED: Published("baremetal.node.inspect.error", "error"),
    EventType.ABORTED: Published("baremetal.node.inspect.error", "error"),
    EventType.HARDWARE_CHANGED: Published("baremetal.node.hardware_change.success"),
    EventType.DISCOVERED: Published("baremetal.node.discover.success"),
    EventType.CREATED: Published("baremetal.node.create.end"),
    EventType.DELETED: Published("baremetal.node.delete.end"),
    EventType.TEST: Published("baremetal.ferroscope.test.success"),
}


def notification(event: OutboxEvent, publisher: str) -> dict[str, Any]:
    """Return the notification; its ``message_id`` is the ID of the event."""
    published = PUBLISHED[event.type]
    data = dict(event.data)
    node = data.pop("node", None) or {}
    return {
        "message_id": event.event,
        "publisher_id": publisher,
        "event_type": published.event_type,
        "priority": published.priority.upper(),
        "timestamp": str(datetime.fromtimestamp(event.at, UTC).replace(tzinfo=None)),
        "payload": {
            "ironic_object.name": "NodeInspectionPayload",
            "ironic_object.namespace": "ferroscope",
            "ironic_object.version": _VERSION,
            "ironic_object.data": node | {"event": event.type} | data,
        },
        # By this, oslo.messaging ignores a message that it has received just before.
        "_unique_id": UUID(event.event).hex,
    }


def envelope(message: dict[str, Any]) -> str:
    """Return the text of a message."""
    return msgspec.json.encode({"oslo.version": "2.0", "oslo.message": msgspec.json.encode(message).decode()}).decode()


class _NotificationChannel:
    """A connection, what has been declared on it, and when it was last used."""

    def __init__(self, connection: AmqpConnection) -> None:
        self.connection = connection
        self.declared: set[str] = set()
        self.used_at = time.monotonic()


class VersionedNotifications:
    """A ``contracts.remote.Sender``; ``host`` is part of the publisher's name.

    ``OSError`` if a file for TLS cannot be used.
    """

    def __init__(self, target: RabbitmqTarget, *, host: str) -> None:
        self.connections = target.connections
        self._target = target
        self._broker = target.broker()
        self._publisher = f"ferroscope.{host}"
        self._idle: queue.LifoQueue[_NotificationChannel] = queue.LifoQueue()
        check_files(self._broker)

    def send(self, event: OutboxEvent) -> None:
        routing_key = f"{self._target.topic}.{PUBLISHED[event.type].priority}"
        body = envelope(notification(event, self._publisher))
        try:
            channel = self._borrow_channel()
            try:
                self._declare(channel, routing_key)
                channel.connection.publish(
                    body,
                    exchange=self._target.exchange,
                    routing_key=routing_key,
                    timeout=self._target.timeout,
                    mandatory=True,
                    content_type="application/json",
                    delivery_mode=_DELIVERY_MODE_PERSISTENT,
                    message_id=event.event,
                )
            except BaseException:
                channel.connection.close()
                raise
        except BrokerError as exc:
            raise SendError(str(exc), unreachable=True) from exc
        channel.used_at = time.monotonic()
        self._idle.put(channel)

    def close(self) -> None:
        while True:
            try:
                self._idle.get_nowait().connection.close()
            except queue.Empty:
                return

    def _borrow_channel(self) -> _NotificationChannel:
        """Return an unused connection, preferably one that was used just now: heartbeats need no thread then."""
        while True:
            try:
                channel = self._idle.get_nowait()
            except queue.Empty:
                hosts = BrokerHosts(self._broker, name="ferroscope notifications", confirm=True)
                return _NotificationChannel(hosts.connect())
            if time.monotonic() - channel.used_at < self._broker.heartbeat / 2:
                return channel
            channel.connection.close()

    def _declare(self, channel: _NotificationChannel, routing_key: str) -> None:
        """Declare exchange and queue as consumers do, so that nothing is lost before the first one is there."""
        if routing_key in channel.declared:
            return
        exchange, queues = self._target.exchange, self._target.queues
        durable = queues != "transient"
        arguments = {"x-queue-type": "quorum"} if queues == "quorum" else {}

        def declare(amqp: Any) -> None:
            amqp.exchange_declare(exchange, "topic", durable=durable, auto_delete=False)
            amqp.queue_declare(routing_key, durable=durable, auto_delete=False, arguments=arguments)
            amqp.queue_bind(routing_key, exchange, routing_key)

        channel.connection.call(declare)
        channel.declared.add(routing_key)
