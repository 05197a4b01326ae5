"""A process with a coordination service: what is refused at the start, and what an operator gets to see of it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ferroscope.config.coordination_options import CoordinationSettings
from ferroscope.config.errors import SetupError
from ferroscope.config.options import Settings
from ferroscope.contracts.store import CoordinationService, CoordinationUnavailableError
from ferroscope.doctor import host
from ferroscope.liveness.service import build_coordination_service, build_party_watch
from tests import ROOT
from tests.support.certificates import Authority
from tests.support.daemons import tls_port
from tests.support.processes import PATIENCE, free_port
from tests.support.servers import Server

PASSWORD = "hunter2-secret"
_DOCTOR = """
import sys
from tests.nightly.buses.test_coordination_service import host, settings
found = next(host._coordination(settings(sys.argv[1], session=10)))
print(found.code, found.verdict, found.summary)
"""


def settings(url: str, session: int = 2) -> Settings:
    return Settings(coordination=CoordinationSettings(backend="tooz", backend_url=url, session_timeout=session))


@pytest.fixture(scope="module")
def protected() -> Iterator[Server]:
    """Give a Redis that wants a password."""
    server = Server("redis", "redis-with-password")
    with redis.Redis(port=server.port) as client:
        client.config_set("requirepass", PASSWORD)
    yield server
    server.discard()


def coordination(found: Settings) -> list[tuple[str, str]]:
    return [(one.code, one.verdict) for one in host._coordination(found)]


def test_the_right_password_is_used_and_never_shown(protected: Server) -> None:
    right = settings(f"redis://:{PASSWORD}@127.0.0.1:{protected.port}")
    service = build_coordination_service(right, "me", threading.Event())
    assert service is not None
    service.join()
    assert service.alive() == {"me"}
    service.leave()
    findings = list(host._coordination(right))
    assert coordination(right) == [("coordination", "ok")]
    assert not [one for one in findings if PASSWORD in repr(one)]


def test_a_wrong_password_stops_the_start_and_doctor_reports_it_without_showing_it(protected: Server) -> None:
    wrong = settings(f"redis://:wrong{PASSWORD}@127.0.0.1:{protected.port}")
    with pytest.raises(SetupError, match=r"\[coordination\] backend_url") as refused:
        build_party_watch(wrong, None, member="me", clock=None, stop=threading.Event())  # type: ignore[arg-type]
    (finding,) = host._coordination(wrong)
    assert (finding.code, finding.verdict) == ("coordination", "wrong")
    for shown in (str(refused.value), repr(finding)):
        assert PASSWORD not in shown


@pytest.mark.parametrize("scheme", ["etcd3+http", "zookeeper", "redis"])
def test_a_service_that_does_not_answer_is_unavailable_within_seconds_and_no_reason_to_stop(scheme: str) -> None:
    absent = settings(f"{scheme}://127.0.0.1:{free_port()}")
    service = build_coordination_service(absent, "me", threading.Event())
    assert service is not None
    for call in (service.join, service.alive):
        with pytest.raises(CoordinationUnavailableError):
            call()
    service.leave()
    assert coordination(absent) == [("coordination", "wrong")]


def test_a_session_that_outlasts_the_leases_is_pointed_out(protected: Server) -> None:
    slow = settings(f"redis://:{PASSWORD}@127.0.0.1:{protected.port}", session=10)
    assert coordination(slow) == [("coordination", "ok"), ("coordination-slow", "note")]


class _Cut:
    """A way to a ZooKeeper that ends for good after so many of its answers."""

    def __init__(self, server: Server, answers: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._server = server
        self._answers = answers
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        self._listener.close()
        server = socket.create_connection(("127.0.0.1", self._server.port))
        with contextlib.suppress(OSError), client, server, server.makefile("rb") as answers:
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()
            for _ in range(self._answers):
                length = answers.read(4)
                client.sendall(length + answers.read(int.from_bytes(length, "big")))
            client.shutdown(socket.SHUT_RDWR)

    @staticmethod
    def _pass_on(client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while found := client.recv(4096):
                server.sendall(found)


def test_joining_ends_although_the_connection_is_lost_in_the_midst_of_it() -> None:
    # Which of the client's threads is first decides whether it notices: four of ten such losses hung forever.
    server = Server("zookeeper", "zookeeper-to-cut-off")
    for answers in (2, 3) * 6:
        service = build_coordination_service(
            settings(f"zookeeper://127.0.0.1:{_Cut(server, answers).port}"), "me", threading.Event()
        )
        assert service is not None
        failures: list[Exception] = []
        joining = threading.Thread(target=_joins, args=(service, failures), daemon=True)
        joining.start()
        joining.join(PATIENCE)
        assert not joining.is_alive()
        assert [type(one) for one in failures] == [CoordinationUnavailableError]
        service.leave()
    server.discard()


def _joins(service: CoordinationService, failures: list[Exception]) -> None:
    try:
        service.join()
    except CoordinationUnavailableError as exc:
        failures.append(exc)


@pytest.fixture(params=["etcd", "zookeeper", "redis"])
def secured(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path, Path]]:
    """Give the URL of a service with TLS, up to its authority's file; that file, and the one of another authority."""
    server, authority = Server(request.param, f"{request.param}-tls"), Authority(tmp_path)
    pair = authority.issue("service")
    server.stop()
    for source, name in ((pair.certificate, "tls.crt"), (pair.key, "tls.key")):
        target = server.directory / name
        target.write_bytes(source.read_bytes())
        target.chmod(0o644)
    server.start()
    scheme, options = {
        "etcd": ("etcd3+https", "ca_cert="),
        "zookeeper": ("zookeeper", "use_ssl=true&ca="),
        "redis": ("redis", "ssl=true&ssl_ca_certs="),
    }[request.param]
    url = f"{scheme}://127.0.0.1:{tls_port(server.port)}?{options}"
    yield url, authority.ca, Authority(tmp_path, "other").ca
    server.discard()


def test_a_service_with_tls_is_used_only_if_it_proves_who_it_is(secured: tuple[str, Path, Path]) -> None:
    url, own, other = secured
    assert _doctor(f"{url}{own}").startswith("coordination ok ")
    refused = _doctor(f"{url}{other}")
    assert refused.startswith("coordination wrong ")
    assert str(other) not in refused


def _doctor(url: str) -> str:
    # A process of its own, for kazoo leaves a socket for the garbage collector if a handshake fails or takes long. Its
    # warning has no line number, for which pytest 9.2 ends the whole run with an error of its own.
    command = [sys.executable, "-c", _DOCTOR, url]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


@pytest.mark.parametrize(("scheme", "package"), [("redis", "tooz"), ("zookeeper", "kazoo"), ("etcd3+http", "etcd3gw")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, scheme: str, package: str) -> None:
    monkeypatch.delitem(sys.modules, "ferroscope.contrib.tooz.liveness", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(SetupError, match=r"\[coordination\]") as refused:
        build_coordination_service(settings(f"{scheme}://192.0.2.1"), "me", threading.Event())
    assert package in refused.value.summary
    assert "[tooz]" in refused.value.advice


def test_without_the_section_nothing_of_it_is_imported(tmp_path: Path) -> None:
    assert build_coordination_service(Settings(), "me", threading.Event()) is None
    assert coordination(Settings()) == []
