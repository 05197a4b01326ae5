"""RabbitMQ as the message bus: it wakes up other processes at once, and nothing waits for it when it is in trouble."""

from __future__ import annotations

import gc
import shutil
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ferroscope.bus import rabbitmq as bus_module
from ferroscope.bus.checks import check_bus
from ferroscope.bus.local import RABBITMQ, LocalBus
from ferroscope.config.errors import SetupError
from ferroscope.config.messaging_options import parse_url
from ferroscope.config.options import BusSettings, DatabaseSettings, Settings
from ferroscope.core.model import Request
from ferroscope.core.states import Event
from ferroscope.doctor import host
from ferroscope.remote.rabbitmq import AmqpConnection, BrokerError, check, check_files
from ferroscope.runtime.backend import Backend, open_backend
from ferroscope.runtime.system import SystemClock
from tests.support import examples, rabbitmq
from tests.support.certificates import Authority
from tests.support.processes import PATIENCE, finished, free_port, until
from tests.support.servers import Server

SOON = 10.0  # seconds; some milliseconds on a machine with nothing else to do
# Only RabbitMQ can be what wakes up anybody: nothing polls as often as that.
SLOW_POLL_SECONDS = 600.0


class Pair:
    """Two processes' connections to one database and one RabbitMQ; the first one listens."""

    def __init__(self, database: str, url: str, exchange: str) -> None:
        self.stop = threading.Event()
        bus = BusSettings(transport_url=url, exchange=exchange, connect_timeout=1.0)
        connection = DatabaseSettings(connection=database)
        self.settings = Settings(database=connection, bus=bus)
        self.listening, self.other = (
            open_backend(
                self.settings, clock=SystemClock(), stop=self.stop, listen=listen, poll_seconds=SLOW_POLL_SECONDS
            )
            for listen in (True, False)
        )

    @property
    def local(self) -> LocalBus:
        assert isinstance(self.listening.bus, LocalBus)
        return self.listening.bus

    def hears(self) -> bool:
        return self.local.hears_from(RABBITMQ)

    def position(self, channel: str = "requests") -> int:
        return self.local.wait(channel, 0, 0.0)

    def wakes(self, write: Callable[[Backend], object], channel: str = "requests") -> bool:
        seen = self.position(channel)
        write(self.other)
        return self.local.wait(channel, seen, SOON) > seen

    def close(self) -> None:
        self.stop.set()
        for backend in (self.other, self.listening):
            backend.close()
        assert until(lambda: not [one for one in threading.enumerate() if one.name.startswith(("bus-", "wake-up"))])


def put(backend: Backend) -> None:
    backend.store.write(lambda tx: tx.requests.put(Request(node=examples.uuid(), event=Event.INSPECT)))


def release(backend: Backend) -> None:
    lease = backend.store.write(lambda tx: tx.leases.acquire("backup", "somebody", 60.0))
    assert lease is not None
    backend.store.write(lambda tx: tx.leases.release(lease))


@contextmanager
def paired(database: str, server: Server) -> Iterator[Pair]:
    found = Pair(database, server.url(""), examples.uuid())
    try:
        assert until(found.hears)
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def rabbitmq_server() -> Iterator[Server]:
    """Give a RabbitMQ to do harm to; each test repairs it."""
    server = Server("rabbitmq", f"rabbitmq-{examples.uuid()}")
    yield server
    server.discard()


@pytest.fixture
def pair(mariadb_url: str, shared_rabbitmq: Server) -> Iterator[Pair]:
    with paired(mariadb_url, shared_rabbitmq) as found:
        yield found


def test_a_new_request_and_a_released_lease_wake_up_other_processes(pair: Pair) -> None:
    assert pair.wakes(put)
    assert pair.wakes(release, "leases")
    assert pair.wakes(put, "requests bmc")


def test_a_process_does_not_hear_its_own_messages(pair: Pair) -> None:
    own, other = pair.listening.rabbitmq, pair.other.rabbitmq
    assert own is not None
    assert other is not None
    assert until(lambda: pair.position("deny") == 1)  # as at every start
    own.publisher.publish("deny")
    assert until(lambda: not own.publisher._waiting)
    for channel, position in (("allow", 2), ("deny", 3)):
        other.publisher.publish(channel)
        assert until(lambda: pair.position(channel) >= position)  # noqa: B023
    assert pair.position("deny") == 3


def test_messages_that_are_no_hints_are_ignored(pair: Pair) -> None:
    broker = pair.settings.bus.broker()
    assert broker is not None
    connection = AmqpConnection(broker, broker.hosts[0], name="test")
    exchange = pair.settings.bus.exchange
    for body in ("", "nonsense", "x" * 100_000, "\n" * 100_000, "requests" + "x" * 500, "leases\0"):
        connection.publish(body, exchange=exchange)
    before = pair.position()
    connection.publish("nonsense\nrequests\nallow add x", exchange=exchange)
    assert until(lambda: pair.position() > before)
    assert pair.position("nonsense") == pair.position("leases\0") == 0
    assert pair.position("allow") > 0
    connection.close()


def test_a_broker_that_is_killed_or_frozen_holds_up_no_commit_and_is_used_again(
    mariadb_url: str, rabbitmq_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "_WARN_AFTER_SECONDS", 0.0)
    with paired(mariadb_url, rabbitmq_server) as pair:
        assert pair.wakes(put)
        for harm, repair in (
            (rabbitmq_server.freeze, rabbitmq_server.thaw),
            (rabbitmq_server.kill, rabbitmq_server.start),
        ):
            harm()
            finished(lambda: [put(pair.other) for _ in range(50)])
            assert until(lambda: not pair.hears())
            assert until(lambda: _problem(pair.listening) == "bus-down")
            assert until(lambda: (put(pair.other), _problem(pair.other) == "bus-down")[1])
            repair()
            assert until(pair.hears)
            assert until(lambda: _problem(pair.other) is None)
            assert pair.wakes(put)


def test_a_broker_without_memory_is_reported_and_publishing_goes_on_when_it_has_some(
    mariadb_url: str, rabbitmq_server: Server
) -> None:
    with paired(mariadb_url, rabbitmq_server) as pair:
        assert pair.wakes(put)
        rabbitmq.control(rabbitmq_server.directory, "set_vm_memory_high_watermark", "absolute", "1")

        def blocked() -> bool:
            finished(lambda: put(pair.other))
            return _problem(pair.other) == "bus-blocked"

        assert until(blocked)
        rabbitmq.control(rabbitmq_server.directory, "set_vm_memory_high_watermark", "0.4")
        assert until(lambda: _problem(pair.other) is None)
        assert pair.wakes(put)


def test_what_waits_for_a_broker_is_bounded_and_commits_do_not_wait(sqlite_url: str) -> None:
    pair = Pair(sqlite_url, f"rabbit://127.0.0.1:{free_port()}/", "x")
    assert pair.other.rabbitmq is not None
    publisher = pair.other.rabbitmq.publisher
    finished(lambda: [publisher.publish(f"allow add {number}") for number in range(5000)])
    assert len(publisher._waiting) <= 1001
    finished(pair.close)


@pytest.mark.parametrize(("login", "path"), [("guest:wrong", "/"), ("guest:guest", "/missing")])
def test_wrong_credentials_are_refused_at_the_start(shared_rabbitmq: Server, login: str, path: str) -> None:
    url = f"rabbit://{login}@127.0.0.1:{shared_rabbitmq.port}{path}"
    with pytest.raises(SetupError) as error:
        check_bus(Settings(bus=BusSettings(transport_url=url)))
    assert "[bus] transport_url" in str(error.value)
    assert "wrong" not in str(error.value)


def test_a_broker_that_is_down_does_not_prevent_the_start() -> None:
    check_bus(Settings(bus=BusSettings(transport_url=f"rabbit://127.0.0.1:{free_port()}/")))


def test_doctor_connects_to_each_broker_and_shows_no_password(shared_rabbitmq: Server) -> None:
    right, absent = f"127.0.0.1:{shared_rabbitmq.port}", f"127.0.0.1:{free_port()}"

    def verdicts(url: str) -> list[tuple[str, str]]:
        found = list(host._bus(Settings(bus=BusSettings(transport_url=url, connect_timeout=5.0))))
        assert "hunter2" not in repr(found)
        return [(one.code, one.verdict) for one in found]

    assert verdicts("") == []
    assert verdicts(f"rabbit://guest:guest@{right},guest:guest@{absent}/") == [("bus", "ok"), ("bus", "wrong")]
    assert verdicts(f"rabbit://guest:hunter2@{right}/") == [("bus", "wrong")]
    assert verdicts(f"rabbit://guest:hunter2@{right}/?ssl=true&ssl_ca_file=/missing") == [("bus", "wrong")]


def test_a_missing_package_is_named_at_the_start_and_by_doctor(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(bus=BusSettings(transport_url="rabbit://192.0.2.1/"))
    monkeypatch.setitem(sys.modules, "kombu", None)
    with pytest.raises(SetupError) as refused:
        check_bus(settings)
    assert "kombu" in refused.value.summary
    assert "[rabbitmq]" in refused.value.advice
    (finding,) = host._bus(settings)
    assert (finding.verdict, finding.summary, finding.advice) == ("wrong", refused.value.summary, refused.value.advice)


def test_tls_needs_the_right_authority_and_the_certificate_of_the_client(
    rabbitmq_server: Server, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    server, client = authority.issue("broker"), authority.issue("ferroscope")
    for source, name in ((server.certificate, "tls.crt"), (server.key, "tls.key"), (authority.ca, "ca.crt")):
        shutil.copy(source, rabbitmq_server.directory / name)
    rabbitmq_server.kill()
    rabbitmq_server.start()
    url = f"rabbit://127.0.0.1:{rabbitmq_server.port}/?ssl=true&ssl_ca_file="
    own = f"&ssl_cert_file={client.certificate}&ssl_key_file={client.key}"

    def result(parameters: str) -> str:
        try:
            broker = parse_url(url + parameters)
            check_files(broker)
            return str(check(broker))
        except (BrokerError, OSError) as exc:
            return type(exc).__name__

    assert result(f"{authority.ca}{own}") == "None"
    assert result(f"{other.ca}{own}") == "BrokerError"
    assert result(f"{tmp_path}/missing{own}") == "FileNotFoundError"
    assert result(str(authority.ca)) != "None"
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (rabbitmq_server.directory / name).unlink()
    rabbitmq_server.kill()
    rabbitmq_server.start()


def _problem(backend: Backend) -> str | None:
    assert backend.rabbitmq is not None
    found = backend.rabbitmq.problem()
    return None if found is None else found.code


@pytest.mark.parametrize("greeting", [b"", b"AMQP\0\0\x09\x01", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_handshake_that_fails_leaves_no_socket_open(greeting: bytes) -> None:
    """``greeting``: what the other side sends before it closes, or before it is silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = parse_url(f"rabbit://u:p@127.0.0.1:{server.getsockname()[1]}/", timeout=0.3)
        accepted: list[socket.socket] = []

        def answer() -> None:
            for closes in (True, False):
                peer, _ = server.accept()
                accepted.append(peer)
                peer.sendall(greeting)
                if closes:
                    peer.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", ResourceWarning)
            for _ in range(2):
                with pytest.raises(BrokerError):
                    AmqpConnection(broker, broker.hosts[0], name="test")
            gc.collect()
        thread.join(PATIENCE)
        for peer in accepted:
            peer.close()
    assert [str(one.message) for one in found] == []
