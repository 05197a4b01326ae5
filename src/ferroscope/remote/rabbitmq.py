"""Connections to RabbitMQ: several hosts, TLS, heartbeats, bounded times; errors that show no credentials.

``kombu`` is imported late: only a service that uses RabbitMQ needs it. A connection belongs to one thread.

The broker is not trusted. Each call ends in time, and frames and messages that are larger than any of ours are refused
before they are read. amqp limits neither.
"""

from __future__ import annotations

import random
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from ferroscope.config.messaging_options import Broker, BrokerHost, BrokerTls
from ferroscope.remote.calls import Deadline, DeadlineError, current_deadline

_REFUSED: Final = {403: "the credentials or permissions are refused", 530: "the virtual host is refused"}
_EXPLANATIONS: Final = {
    **_REFUSED,
    312: "no queue gets the message; was it deleted?",
    406: "an exchange or a queue of this name exists with other properties",
}
_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.2, 5.0
_TICK_SECONDS: Final = 1.0
# The longest write: TCP buffers are full, as the broker has stopped reading.
_WRITE_TIMEOUT_SECONDS: Final = 2.0
# RabbitMQ's own default. A hint, and a message that comes back, is smaller than one frame or a few.
_MAX_FRAME_BYTES: Final = 131_072
_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_BODY_SIZE: Final = struct.Struct(">4xQ")
_CONTENT_HEADER: Final = 2


class BrokerError(Exception):
    """RabbitMQ cannot be used now. ``refused``: it answers and refuses, so waiting will not help."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        self.refused = refused
        super().__init__(message)


class AmqpConnection:
    """An open AMQP connection with one channel; all methods raise ``BrokerError``.

    ``confirm``: a publication returns when the broker has taken responsibility for the message. ``blocked``: the broker
    accepts no messages now, because its memory or disk is full.
    """

    def __init__(self, broker: Broker, host: BrokerHost, *, name: str, confirm: bool = False) -> None:
        from kombu.connection import Connection as Settings

        self.host = host
        self.blocked = False
        self._seconds = broker.timeout + _WRITE_TIMEOUT_SECONDS
        self._ticked = time.monotonic()
        settings: Any = Settings(  # type: ignore[no-untyped-call]
            host.host,
            host.user,
            host.password,
            broker.virtual_host,
            host.port,
            ssl=tls_options(broker.tls, host.host),
            connect_timeout=broker.timeout,
            heartbeat=broker.heartbeat,
            transport=_bounded_transport(),
            transport_options={
                "read_timeout": broker.timeout,
                "write_timeout": _WRITE_TIMEOUT_SECONDS,
                "confirm_publish": confirm,
                "client_properties": {"connection_name": name},
                "on_blocked": lambda _reason: self._block(blocked=True),
                "on_unblocked": lambda: self._block(blocked=False),
            },
        )
        try:
            with self._translate_errors():
                self._amqp: Any = settings.transport.establish_connection()
                self.channel: Any = self._amqp.channel()
        except BrokerError:
            self.close()
            raise

    def publish(
        self,
        body: str,
        *,
        exchange: str,
        routing_key: str = "",
        timeout: float = _WRITE_TIMEOUT_SECONDS,
        mandatory: bool = False,
        **properties: Any,
    ) -> None:
        """Publish a text; ``properties`` are those of AMQP. ``mandatory``: it is an error if no queue gets it."""
        with self._translate_errors():
            content_type = properties.pop("content_type", "text/plain")
            message = self.channel.prepare_message(
                body, content_type=content_type, content_encoding="utf-8", properties=properties
            )
            self.channel.basic_publish(
                message, exchange=exchange, routing_key=routing_key, mandatory=mandatory, timeout=timeout
            )

    def call(self, method: Callable[[Any], Any]) -> Any:
        """Return the result of ``method``, which gets the channel."""
        with self._translate_errors():
            return method(self.channel)

    def process_events(self, timeout: float) -> None:
        """Handle the broker's messages and send heartbeats; without a message, return after ``timeout`` seconds."""
        with self._translate_errors():
            with suppress(TimeoutError):
                self._amqp.drain_events(timeout=timeout)
            now = time.monotonic()
            if now - self._ticked >= _TICK_SECONDS:
                self._ticked = now
                self._amqp.heartbeat_tick()

    def close(self) -> None:
        """Close without waiting for the broker's answer."""
        with suppress(Exception):
            self._amqp.transport.sock.settimeout(0.5)
            self._amqp.close()
        with suppress(Exception):
            self._amqp.collect()

    def _block(self, *, blocked: bool) -> None:
        self.blocked = blocked

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        import amqp

        try:
            with Deadline(self._seconds):
                yield
        except BrokerError:
            raise
        except amqp.exceptions.AMQPError as exc:
            code = getattr(exc, "code", 0)
            message = _EXPLANATIONS.get(code) or f"{type(exc).__name__}: {exc.reply_text or exc}"
            raise BrokerError(f"{self.host}: {message}", refused=code in _REFUSED) from exc
        except amqp.exceptions.MessageNacked as exc:
            raise BrokerError(f"{self.host}: the broker has not stored the message") from exc
        except ssl.SSLCertVerificationError as exc:
            raise BrokerError(f"{self.host}: TLS: {exc.verify_message}", refused=True) from exc
        except (TimeoutError, DeadlineError, socket.gaierror) as exc:
            problem = "the host name cannot be resolved" if isinstance(exc, socket.gaierror) else "no answer in time"
            raise BrokerError(f"{self.host}: {problem}") from exc
        except OSError as exc:
            raise BrokerError(f"{self.host}: {exc.strerror or exc or type(exc).__name__}") from exc
        except Exception as exc:  # amqp fails in many ways on data that is not AMQP
            raise BrokerError(f"{self.host}: its answer is not AMQP ({type(exc).__name__})") from exc


@cache
def _bounded_transport() -> Any:
    from amqp.exceptions import UnexpectedFrame
    from kombu.transport import pyamqp

    def unpack_header(layout: str, header: bytes) -> tuple[Any, ...]:
        kind, channel, size = struct.unpack(layout, header)
        if size > _MAX_FRAME_BYTES:
            raise UnexpectedFrame(f"a frame has {size} bytes; at most {_MAX_FRAME_BYTES} are allowed")
        return kind, channel, size

    class TransportConnection(pyamqp.Connection):
        watched_by: Deadline | None = None

        def connect(self, callback: Any = None) -> Any:
            try:
                return super().connect(callback)
            except Exception:
                self.collect()  # amqp closes the socket only after some errors
                raise

        def blocking_read(self, timeout: float | None = None) -> Any:
            deadline = current_deadline()
            deadline.seconds_left()
            if deadline is not self.watched_by:
                deadline.watch(self.transport.sock)
                self.watched_by = deadline
            with self.transport.having_timeout(timeout):
                frame = self.transport.read_frame(unpack_header)
            if frame[0] == _CONTENT_HEADER and (size := _BODY_SIZE.unpack_from(frame[2])[0]) > _MAX_MESSAGE_BYTES:
                raise UnexpectedFrame(f"a message has {size} bytes; at most {_MAX_MESSAGE_BYTES} are allowed")
            return self.on_inbound_frame(frame)

    return type("BoundedTransport", (pyamqp.Transport,), {"Connection": TransportConnection})


def tls_options(tls: BrokerTls | None, host: str) -> dict[str, Any] | bool:
    """Return the options of TLS as kombu takes them; False: no TLS."""
    if tls is None:
        return False
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host}
    options["ca_certs"] = tls.ca_file or None  # None: those of the system
    if tls.certificate_file:
        options |= {"certfile": tls.certificate_file, "keyfile": tls.key_file}
    return options


def check_files(broker: Broker) -> None:
    """Read the files for TLS: ``OSError`` or ``ssl.SSLError`` if one cannot be used."""
    if broker.tls is None:
        return
    context = ssl.create_default_context()
    if broker.tls.ca_file:
        Path(broker.tls.ca_file).open("rb").close()
        context.load_verify_locations(broker.tls.ca_file)
    if broker.tls.certificate_file:
        context.load_cert_chain(broker.tls.certificate_file, broker.tls.key_file)


class BrokerHosts:
    """Connects to one of the hosts: another one after each failure, with increasing pauses. For one thread."""

    def __init__(self, broker: Broker, *, name: str, confirm: bool = False) -> None:
        self._broker = broker
        self._name = name
        self._confirm = confirm
        # Processes begin with different hosts, so that they share the load.
        self._hosts = random.sample(broker.hosts, len(broker.hosts))
        self._failures = 0

    def connect(self) -> AmqpConnection:
        """Try each host once; ``BrokerError`` of the last one, unless one refuses."""
        errors = []
        for _ in self._hosts:
            host = self._hosts[0]
            try:
                connection = AmqpConnection(self._broker, host, name=self._name, confirm=self._confirm)
            except BrokerError as exc:
                self._hosts.append(self._hosts.pop(0))
                errors.append(exc)
                continue
            return connection
        raise next((error for error in errors if error.refused), errors[-1])

    def note_success(self) -> None:
        """The connection was of use: the next failure is the first one."""
        self._failures = 0

    def pause(self) -> float:
        """Return for how many seconds to wait after a failure."""
        self._failures += 1
        longest: float = min(_MAX_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** min(self._failures - 1, 10))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311  # jitter


def probe(broker: Broker, host: BrokerHost) -> None:
    """Connect to one host, and close; ``BrokerError``."""
    AmqpConnection(broker, host, name="ferroscope check").close()


def check(broker: Broker) -> BrokerError | None:
    """Return why no broker can be used now, if none can; ``BrokerError`` if one refuses us."""
    error = None
    for host in broker.hosts:
        try:
            probe(broker, host)
        except BrokerError as exc:
            if exc.refused:
                raise
            error = exc
        else:
            return None
    return error
