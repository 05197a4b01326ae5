"""RabbitMQ as the message bus: hints that are published after a commit, and those of other processes.

The database is the queue, so a message is worth only a poll interval and nothing is done to keep it: it is transient,
not confirmed, and goes through a fanout exchange to an exclusive queue of each listening process, which is gone with
its connection. Neither a commit nor an API call waits for the broker: a thread of its own publishes.
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any, Final

import structlog

from ferroscope.bus.local import RABBITMQ, LocalBus
from ferroscope.bus.outage import Outage
from ferroscope.config.messaging_options import Broker
from ferroscope.contracts.store import Channel, StopFlag
from ferroscope.remote.rabbitmq import AmqpConnection, BrokerError, BrokerHosts
from ferroscope_client.core.finding import Finding

# Messages that wait to be published. Equal ones are one, so there are more of them only of single MACs.
_MAX_WAITING_MESSAGES: Final = 1000
# Messages within this time are sent together: a busy process sends at most 200 times a second.
_BATCH_SECONDS: Final = 0.005
_WARN_AFTER_SECONDS: Final = 5.0
_FLUSH_SECONDS: Final = 1.0
_MAX_LINES, _MAX_LINE_CHARACTERS = 2 * _MAX_WAITING_MESSAGES, 200
# A process that does not read gets the newest hints when it reads again, and its queue does not grow.
_QUEUE: Final = {"x-max-length": 1000, "x-message-ttl": 10_000}

_log = structlog.get_logger(__name__)


class HintPublisher:
    """A ``contracts.store.Publisher``: to the threads of this process, and to all other processes.

    Its thread starts with the first message and ends with ``close``, so that a command or a parent process that
    publishes nothing has neither thread nor connection. After ``close`` it may be used again.
    """

    def __init__(self, local: LocalBus, hosts: BrokerHosts, exchange: str, origin: str) -> None:
        self._local = local
        self._hosts = hosts
        self._exchange = exchange
        self._origin = origin
        self._changed = threading.Condition()
        self._waiting: dict[str, None] = {}  # in order
        self._closing_until: float | None = None
        self._thread: threading.Thread | None = None
        self.outage = Outage()
        self.blocked = False

    def publish(self, message: str) -> None:
        self._local.publish(message)
        with self._changed:
            if len(self._waiting) >= _MAX_WAITING_MESSAGES:
                message = message.partition(" ")[0]  # there are few of those
            self._waiting[message] = None
            if self._thread is None:
                self._closing_until = None
                self._thread = threading.Thread(target=self._run, name="bus-publisher", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Publish what waits, if the broker takes it at once; end the thread."""
        with self._changed:
            thread = self._thread
            self._closing_until = time.monotonic() + _FLUSH_SECONDS
            self._changed.notify()
        if thread is not None:
            thread.join(2 * _FLUSH_SECONDS)

    def _run(self) -> None:
        while not self._is_closed():
            try:
                connection = self._hosts.connect()
            except BrokerError as exc:
                self._down(exc)
                continue
            try:
                self._serve(connection)
            except BrokerError as exc:
                self._down(exc)
            finally:
                self.blocked = False
                connection.close()

    def _serve(self, connection: AmqpConnection) -> None:
        connection.call(lambda channel: _declare(channel, self._exchange))
        self._hosts.note_success()
        if self.outage.end():
            _log.info("RabbitMQ is back", broker=str(connection.host))
        while not self._is_closed():
            connection.process_events(0)
            self.blocked = connection.blocked
            if self.blocked:
                connection.process_events(0.5)
                continue
            if messages := self._take():
                body = "\n".join(messages)
                connection.publish(body, exchange=self._exchange, delivery_mode=1, app_id=self._origin)
                time.sleep(_BATCH_SECONDS)

    def _take(self) -> list[str]:
        """Return what waits to be published; empty if there is nothing for a while."""
        with self._changed:
            if not self._waiting and self._closing_until is None:
                self._changed.wait(1.0)
            messages = list(self._waiting)
            self._waiting.clear()
            return messages

    def _is_closed(self) -> bool:
        """Whether the thread is to end; then it has ended, as far as ``publish`` is concerned."""
        with self._changed:
            until = self._closing_until
            # What waits is given up where the broker is not there.
            is_done = not self._waiting or self.blocked or self.outage.look() is not None
            if until is None or not (is_done or time.monotonic() > until):
                return False
            self._thread = None
            self._waiting.clear()
            return True

    def _down(self, error: BrokerError) -> None:
        if self.outage.begin(str(error)):
            _log.warning("cannot publish to RabbitMQ; other processes poll until it is back", error=str(error))
        with self._changed:
            if self._closing_until is None:
                self._changed.wait_for(lambda: self._closing_until is not None, self._hosts.pause())


class HintListener:
    """Brings messages of other processes to this one's bus, until ``stop`` is set."""

    def __init__(self, local: LocalBus, hosts: BrokerHosts, exchange: str, origin: str, stop: StopFlag) -> None:
        self._local = local
        self._hosts = hosts
        self._exchange = exchange
        self._origin = origin
        self._stop = stop
        self.outage = Outage()

    def start(self) -> None:
        threading.Thread(target=self._run, name="bus-listener", daemon=True).start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                connection = self._hosts.connect()
                try:
                    self._listen(connection)
                finally:
                    connection.close()
            except BrokerError as exc:
                if self.outage.begin(str(exc)):
                    _log.warning("connection to RabbitMQ lost, polling until it is back", error=str(exc))
                self._stop.wait(self._hosts.pause())

    def _listen(self, connection: AmqpConnection) -> None:
        connection.call(self._subscribe)
        self._hosts.note_success()
        if self.outage.end():
            _log.info("RabbitMQ is back", broker=str(connection.host))
        with self._local.hearing(RABBITMQ):
            for channel in Channel:  # whatever was published before we listened
                self._local.publish(channel)
            while not self._stop.is_set():
                connection.process_events(0.5)

    def _subscribe(self, channel: Any) -> None:
        _declare(channel, self._exchange)
        queue = channel.queue_declare(exclusive=True, auto_delete=True, durable=False, arguments=_QUEUE).queue
        channel.queue_bind(queue, self._exchange)
        channel.basic_consume(queue, no_ack=True, on_cancel=_refuse_cancellation, callback=self._receive)

    def _receive(self, message: Any) -> None:
        if message.properties.get("app_id") == self._origin:
            return  # published here already
        for hint in valid_hints(message.body):
            self._local.publish(hint)


class RabbitmqBus:
    """Both sides in one process; ``local`` is the bus of its threads."""

    def __init__(self, broker: Broker, exchange: str, *, local: LocalBus, stop: StopFlag) -> None:
        origin = uuid.uuid4().hex
        self.publisher = HintPublisher(local, BrokerHosts(broker, name="ferroscope publisher"), exchange, origin)
        self._listener = HintListener(local, BrokerHosts(broker, name="ferroscope listener"), exchange, origin, stop)

    def listen(self) -> None:
        """Start to receive messages."""
        self._listener.start()

    def problem(self) -> Finding | None:
        """Return a finding while the broker cannot be used."""
        advice = "check RabbitMQ and [bus] transport_url; until then processes poll the database: nothing is lost"
        for outage in (self._listener.outage, self.publisher.outage):
            down = outage.look()
            if down is not None and down[0] >= _WARN_AFTER_SECONDS:
                return Finding(
                    "bus-down", "wrong", f"RabbitMQ has been unusable for {down[0]:.0f} s: {down[1]}", advice
                )
        if self.publisher.blocked:
            summary = "RabbitMQ accepts no messages: its memory or its disk is full"
            return Finding("bus-blocked", "wrong", summary, f"rabbitmq-diagnostics alarms; {advice}")
        return None

    def close(self) -> None:
        """Publish what waits, if that is possible at once."""
        self.publisher.close()


def valid_hints(body: str | bytes) -> list[str]:
    """Return the hints of a message; whatever else it contains is ignored."""
    text = body if isinstance(body, str) else body.decode(errors="replace")
    lines = text.split("\n", _MAX_LINES)[:_MAX_LINES]
    return [line for line in lines if len(line) <= _MAX_LINE_CHARACTERS and line.partition(" ")[0] in _CHANNELS]


_CHANNELS: Final = frozenset(map(str, Channel))


def _declare(channel: Any, exchange: str) -> None:
    channel.exchange_declare(exchange, "fanout", durable=True, auto_delete=False)


def _refuse_cancellation(_tag: str) -> None:
    raise BrokerError("the broker has deleted the queue")
