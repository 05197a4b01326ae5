"""HTTPS: what clients get beside slow, silent and lying ones, and while certificates change."""

from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import DAY, Authority, Pair
from tests.support.processes import until
from tests.system.service.small_server import Running, Small, rest

_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
_LARGE = 8_000_000


class Secured(Running):
    """An HTTPS server on a port of 127.0.0.1; every socket that it opens is closed at the end."""

    def __init__(self, authority: Authority, pair: Pair, **options: Any) -> None:
        self.authority, self.pair = authority, pair
        files = {"tls_certificate_file": str(pair.certificate), "tls_key_file": str(pair.key)}
        super().__init__(Small(), tls=True, **files, **options)

    @property
    def members(self) -> list[Any]:
        return list(self.server._host.connections.members)

    def secure(self, client: Pair | None = None, context: ssl.SSLContext | None = None, **more: Any) -> ssl.SSLSocket:
        """Return a TLS connection to a server whose name and authority were verified."""
        context = context or ssl.create_default_context(cafile=str(self.authority.ca))
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        one = context.wrap_socket(self.connect(**more), server_hostname="127.0.0.1")
        self.sockets.append(one)
        return one

    def get(self, path: str = "/", **more: Any) -> int:  # type: ignore[override]  # with a client's certificate
        with self.secure(**more) as one:
            return ask(one, path)


def ask(one: socket.socket, path: str = "/") -> int:
    """Send a request on a connection that is kept; return the status of a short answer."""
    one.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
    data = b""
    while b"bytes" not in data.partition(b"\r\n\r\n")[2]:
        part = one.recv(10_000)
        if not part:
            break
        data += part
    return int(data.split(None, 2)[1])


Start = Callable[..., Secured]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def start(authority: Authority) -> Iterator[Start]:
    """Give a function that starts a server with these options."""
    running: list[Secured] = []

    def begin(**options: Any) -> Secured:
        running.append(Secured(authority, options.pop("pair", None) or authority.issue("server"), **options))
        return running[-1]

    yield begin
    for one in running:
        one.close()


def test_requests_are_served_and_the_application_knows_the_scheme(start: Start) -> None:
    running = start()
    with running.secure() as one:
        assert [ask(one), ask(one)] == [200, 200]
        assert one.version() == "TLSv1.3"
    first = running.app.seen[0]
    assert (first["wsgi.url_scheme"], first["REMOTE_ADDR"]) == ("https", "127.0.0.1")
    assert "ferroscope.client_certificate" not in first


def test_responses_have_security_headers_and_are_complete(start: Start) -> None:
    running = start()
    one = running.secure()
    one.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head, _, body = rest(one).partition(b"\r\n\r\n")
    assert len(body) == _LARGE
    for name in (
        b"Strict-Transport-Security",
        b"X-Content-Type-Options",
        b"Content-Security-Policy",
        b"Referrer-Policy",
    ):
        assert name in head
    assert b"Cache-Control: no-store" in head


def test_a_client_that_says_goodbye_does_not_stop_the_service_for_others(start: Start) -> None:
    """close_notify, as curl sends it; most Python clients just close."""
    running = start()
    one = running.secure()
    assert ask(one) == 200
    one.unwrap()
    assert running.get() == 200
    assert until(lambda: not running.members)


def test_a_response_is_not_held_back_until_the_client_acknowledges_session_tickets(start: Start) -> None:
    running = start()
    with running.secure() as one:
        assert ask(one) == 200
        (member,) = running.members
        accepted = member._transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_plain_http_is_told_what_to_do(start: Start, capfd: pytest.CaptureFixture[str]) -> None:
    running = start()
    answer = rest(running.connect(_GET))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https://" in answer
    assert b"Strict-Transport-Security" not in answer
    assert running.get() == 200
    out, err = capfd.readouterr()
    assert (out + err).count("\n") == (out + err).count("request refused") == 1


@pytest.mark.parametrize(
    "sent",
    [b"\x00" * 300, b"\x16\x03\x01\xff\xff" + b"\xff" * 300, b"\x16\x03\x01\x00\x05hello", b"\x80\x2e\x01\x03\x01"],
)
def test_what_is_no_handshake_is_closed(start: Start, sent: bytes) -> None:
    running = start(header_timeout=2.0)
    one = running.connect(sent)
    one.settimeout(20)
    with contextlib.suppress(ConnectionError):
        rest(one)
    assert running.get() == 200
    assert until(lambda: not running.members)


@pytest.mark.parametrize("version", ["1.2", "1.3"])
def test_old_versions_are_refused(start: Start, version: str) -> None:
    running = start(tls_minimum_version=version)
    context = ssl.create_default_context(cafile=str(running.authority.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    if version == "1.2":
        assert running.get(context=context) == 200
    else:
        with pytest.raises(ssl.SSLError):
            running.get(context=context)
    assert running.get() == 200


def test_a_handshake_has_a_deadline_however_slowly_it_goes_on(start: Start) -> None:
    running = start(header_timeout=1.0)
    silent, slow = running.connect(), running.connect(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    slow.settimeout(0.1)

    def is_closed() -> bool:
        try:
            slow.sendall(b"\x00")
            return slow.recv(100) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True

    assert until(is_closed)
    assert until(lambda: not running.members)
    assert running.get() == 200
    silent.close()


def test_handshakes_count_against_the_limit_of_their_source(start: Start) -> None:
    running = start(max_connections_per_source=10)
    other = running.connect(source="127.0.0.2")
    for _ in range(30):
        running.connect(b"\x16\x03\x01\x02\x00\x01")
    assert until(lambda: len(running.members) == 11)
    assert [running.get() for _ in range(3)] == [200] * 3
    assert any(member.address == "127.0.0.2" for member in running.members)
    other.close()


# Client certificates


@pytest.fixture
def mutual(start: Start, authority: Authority) -> Start:
    """Give a function that starts a server that asks clients for a certificate."""
    return lambda wanted, **more: start(
        tls_client_certificates=wanted, tls_client_ca_file=str(more.pop("ca", authority.ca)), **more
    )


@pytest.mark.parametrize("wanted", ["optional", "required"])
def test_a_client_is_known_by_the_names_of_its_certificate(mutual: Start, authority: Authority, wanted: str) -> None:
    running = mutual(wanted)
    client = authority.issue("alice", hosts=("alice.example.org",))
    assert running.get(client=client) == 200
    assert running.app.seen[0]["ferroscope.client_certificate"] == "CN:alice\nDNS:alice.example.org"


def test_a_client_without_a_certificate_is_served_only_if_it_is_optional(mutual: Start) -> None:
    optional = mutual("optional")
    assert optional.get() == 200
    assert "ferroscope.client_certificate" not in optional.app.seen[0]
    with pytest.raises(OSError, match="CERTIFICATE_REQUIRED"):
        mutual("required").get()


@pytest.mark.parametrize("wrong", ["authority", "expired", "revoked"])
def test_an_invalid_certificate_is_rejected_even_if_it_is_optional(
    mutual: Start, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    (tmp_path / "other").mkdir()
    issuer = Authority(tmp_path / "other") if wrong == "authority" else authority
    client = issuer.issue("mallory", ends=-DAY if wrong == "expired" else DAY)
    trusted = tmp_path / "trusted.pem"
    revoked = authority.revocations(client.serial) if wrong == "revoked" else b""
    trusted.write_bytes(authority.ca.read_bytes() + revoked)
    running = mutual("optional", ca=trusted)
    with pytest.raises(OSError, match=r"ALERT|reset"):
        running.get(client=client)
    assert not running.app.seen
    assert running.get(client=authority.issue("alice")) == 200


# Renewal


def _serial(running: Secured) -> int:
    """Return the serial number of the certificate that a new connection gets."""
    with running.secure() as one:
        found = one.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


def _replace(running: Secured, new: Pair) -> None:
    shutil.copy(new.certificate, running.pair.certificate)
    shutil.copy(new.key, running.pair.key)


def test_a_renewed_certificate_is_used_and_no_connection_is_lost(start: Start, authority: Authority) -> None:
    running = start()
    kept, asked = running.secure(), running.secure()
    assert ask(kept) == 200
    asked.sendall(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n")
    new = authority.issue("server", file="renewed")
    _replace(running, new)
    assert until(lambda: _serial(running) == new.serial)
    assert ask(kept) == 200
    running.app.pxe_filter.set()
    assert b"200 OK" in asked.recv(1000)


@pytest.mark.parametrize("broken", ["certificate only", "empty", "removed", "expired"])
def test_a_broken_renewal_is_logged_and_the_old_certificate_stays(
    start: Start, authority: Authority, broken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    running = start()
    before = _serial(running)
    new = authority.issue("server", file="renewed", ends=-DAY if broken == "expired" else DAY)
    if broken == "certificate only":
        shutil.copy(new.certificate, running.pair.certificate)
    elif broken == "expired":
        _replace(running, new)
    elif broken == "empty":
        running.pair.key.write_bytes(b"")
    else:
        running.pair.certificate.unlink()
    said = ""

    def was_logged() -> bool:
        nonlocal said
        said += "".join(capfd.readouterr())
        return "stays in use" in said

    assert until(was_logged)
    assert "[api] tls_" in said
    assert _serial(running) == before
    _replace(running, good := authority.issue("server", file="good"))
    assert until(lambda: _serial(running) == good.serial)
