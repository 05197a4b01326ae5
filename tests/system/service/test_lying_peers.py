"""Peers that operators configure, taken over or false: calls to them end, with the error that the caller handles.

What each may do otherwise is in docs/explanation/threat-model.md. BMCs, webhooks and object stores have tests of
their own.
"""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ferroscope.api.errors import UnauthorizedError, UnavailableError
from ferroscope.config.coordination_options import CoordinationSettings
from ferroscope.config.messaging_options import parse_url
from ferroscope.config.security_options import KeystoneSettings
from ferroscope.contracts.store import CoordinationUnavailableError
from ferroscope.contrib.dcim.dialects import NETBOX
from ferroscope.contrib.dcim.rest import DcimError, RestClient
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.failover.client import Kubernetes, KubernetesError
from ferroscope.contrib.kubernetes.options import FailoverSettings
from ferroscope.contrib.openstack.keystone import KeystoneAuth
from ferroscope.contrib.tooz.liveness import ToozService
from ferroscope.remote.rabbitmq import AmqpConnection, BrokerError
from ferroscope.runtime.system import SystemClock
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.http_target import HttpTarget

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_MEBIBYTE = b" " * 2**20
_ENDLESS_BODY = ([_OK + b"Content-Length: 9999999999\r\n\r\n", *[_MEBIBYTE] * 9_000], 0.0)
_SLOW_BODY = ([_OK + b"Content-Length: 9999999999\r\n\r\n", *[b" "] * 9_000], 0.05)
# Each server goes on for minutes, or for gigabytes, unless its caller leaves.
_ENDLESS = {
    "a byte at a time": (one_by_one(_OK + b"X-Pad: " + b"x" * 9_000), 0.05),
    "an endless header": ([_OK, *[b"X-Pad: " + b"x" * 60_000 + b"\r\n"] * 9_000], 0.0),
    "an endless body": _ENDLESS_BODY,
    "an endless body, bit by bit": _SLOW_BODY,
}
_SECONDS = 1
# keystonemiddleware imports cgi.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(params=_ENDLESS.values(), ids=_ENDLESS)
def endless(request: pytest.FixtureRequest) -> tuple[list[bytes], float]:
    pieces: tuple[list[bytes], float] = request.param
    return pieces


@contextmanager
def answering(answer: Callable[[str], Any]) -> Iterator[str]:
    """Give the URL of a server that answers each GET with the JSON that ``answer`` returns for its path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answer(self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


# Keystone.


def keystone(url: str) -> KeystoneAuth:
    settings = KeystoneSettings(
        auth_url=url,
        username="ferroscope",
        password="secret",
        http_connect_timeout=_SECONDS,
        http_request_max_retries=0,
    )
    return KeystoneAuth(settings, SystemClock())


def test_a_keystone_that_never_ends_its_answer_costs_a_call_its_time_out(endless: tuple[list[bytes], float]) -> None:
    pieces, pause = endless
    with a_server_that(pieces, pause=pause) as port, pytest.raises(UnavailableError):
        keystone(f"http://127.0.0.1:{port}").identify({"x-auth-token": "gAAAA"})
    assert (port.calls > 0, port.heard_out) == (True, 0)


def test_a_keystone_sends_neither_our_password_nor_a_callers_token_elsewhere() -> None:
    with HttpTarget() as elsewhere, HttpTarget() as server:
        server.statuses = [307]
        server.headers = {"Location": f"{elsewhere.url}/v3/auth/tokens"}
        with pytest.raises((UnavailableError, UnauthorizedError)):
            keystone(server.url).identify({"x-auth-token": "gAAAA"})
    assert (bool(server.seen), elsewhere.seen) == (True, [])


# etcd, whose client Tooz uses.


def test_an_etcd_that_never_ends_its_answer_costs_a_call_its_time_out(endless: tuple[list[bytes], float]) -> None:
    pieces, pause = endless
    with a_server_that(pieces, pause=pause) as port:
        url = f"etcd3+http://127.0.0.1:{port}"
        settings = CoordinationSettings(backend="tooz", backend_url=url, session_timeout=2)
        service = ToozService(settings, "me", threading.Event())
        with pytest.raises(CoordinationUnavailableError):
            service.join()
        service.leave()
    assert (port.calls > 0, port.heard_out) == (True, 0)


# RabbitMQ.


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


_DELIVERY = frame(1, 1, struct.pack(">HH", 60, 60))
_BROKERS = {
    "a frame of 4 GiB": ([b"\x01\0\0\xff\xff\xff\xff", *[_MEBIBYTE] * 9_000], 0.0),
    "a message of a TiB": ([_DELIVERY + frame(2, 1, struct.pack(">HHQH", 60, 0, 2**40, 0)), *[_MEBIBYTE] * 9_000], 0.0),
    "nothing but heartbeats": ([frame(8, 0, b"")] * 9_000, 0.05),
    "a frame, bit by bit": ([b"\x01\0\0\0\x01\0\0", *[b" "] * 9_000], 0.05),
    "a frame for nobody": ([frame(1, 9, struct.pack(">HH", 10, 10)), *[_MEBIBYTE] * 9_000], 0.0),
}


@pytest.mark.parametrize(("pieces", "pause"), _BROKERS.values(), ids=_BROKERS)
def test_a_false_broker_is_left_in_time_and_before_it_has_sent_much(pieces: list[bytes], pause: float) -> None:
    with a_server_that(pieces, pause=pause) as port:
        broker = parse_url(f"rabbit://user:secret@127.0.0.1:{port}/", timeout=_SECONDS)
        with pytest.raises(BrokerError):
            AmqpConnection(broker, broker.hosts[0], name="test")
    assert (port.calls, port.heard_out) == (1, 0)


# NetBox and Nautobot.


def dcim(url: str) -> RestClient:
    return RestClient(url, "secret-token", NETBOX, threading.Event(), seconds=_SECONDS, tries=1)


def test_a_dcim_that_never_ends_its_answer_costs_a_call_its_time_out(endless: tuple[list[bytes], float]) -> None:
    pieces, pause = endless
    with a_server_that(pieces, pause=pause) as port, pytest.raises(DcimError):
        dcim(f"http://127.0.0.1:{port}").check()
    assert (port.calls, port.heard_out) == (1, 0)


def test_a_dcim_whose_list_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferroscope.contrib.dcim.rest._MAX_PAGES", 20)
    page = {"results": [{"id": 1}], "next": "http://elsewhere.example.org/api/dcim/devices/?offset=1"}
    with answering(lambda _path: page) as url, pytest.raises(DcimError, match="more than 20 pages"):
        list(dcim(url).list("dcim/devices"))


@pytest.mark.parametrize("link", ["http://elsewhere.example.org/other", "//elsewhere.example.org", "x@elsewhere"])
def test_a_dcims_link_to_another_server_is_followed_on_its_own(link: str) -> None:
    paths: list[str] = []

    def answer(path: str) -> Any:
        paths.append(path)
        return {"results": [], "next": link if len(paths) == 1 else None}

    with answering(answer) as url:
        assert list(dcim(url).list("dcim/devices")) == []
    assert paths[1:] == ["/api/?"]


@pytest.mark.parametrize("page", [None, [], {}, {"results": None}, {"results": [1]}, {"results": [], "next": 1}])
def test_a_dcims_answer_that_is_no_list_is_an_error_of_the_dcim(page: Any) -> None:
    with answering(lambda _path: page) as url, pytest.raises(DcimError):
        list(dcim(url).list("dcim/devices"))


def test_a_dcims_version_is_not_read_beyond_what_a_version_has() -> None:
    with answering(lambda _path: {NETBOX.version_key: "9" * 10_000}) as url:
        dcim(url).check()


# The Kubernetes API.


def kubernetes(url: str, directory: Path) -> Kubernetes:
    file = directory / "kubeconfig"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(document))
    return role.connect(FailoverSettings(kubeconfig=str(file), request_timeout=_SECONDS))


@pytest.mark.parametrize(("pieces", "pause"), [_ENDLESS["an endless header"], _ENDLESS_BODY, _SLOW_BODY])
def test_an_api_server_that_never_ends_its_answer_costs_a_call_its_time_out(
    tmp_path: Path, pieces: list[bytes], pause: float
) -> None:
    with a_server_that(pieces, pause=pause) as port:
        kube = kubernetes(f"http://127.0.0.1:{port}", tmp_path)
        with pytest.raises(KubernetesError):
            kube.nodes()
        kube.close()
    assert (port.calls > 0, port.heard_out) == (True, 0)


def test_a_watch_ends_after_its_time_and_at_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferroscope.contrib.kubernetes.api._WATCH_SECONDS", 1)
    bookmark = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "1"}}}\n'
    head = _OK + b"\r\n"
    with a_server_that([head, *[bookmark] * 9_000], pause=0.05) as port:
        kube = kubernetes(f"http://127.0.0.1:{port}", tmp_path)
        assert {kind for kind, _ in kube.watch_nodes("")} == {"BOOKMARK"}
        kube.close()
    assert port.heard_out == 0
    with a_server_that([head, *[b"x" * 2**20] * 9_000]) as port:
        kube = kubernetes(f"http://127.0.0.1:{port}", tmp_path)
        with pytest.raises(KubernetesError):
            list(kube.watch_nodes(""))
        kube.close()
    assert port.heard_out == 0


def test_a_list_of_an_api_server_that_never_ends_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferroscope.contrib.kubernetes.api._MAX_PAGES", 20)
    with answering(lambda _path: {"metadata": {"continue": "more"}, "items": []}) as url:
        kube = kubernetes(url, tmp_path)
        with pytest.raises(KubernetesError, match="more than 20 pages"):
            kube.nodes()
        kube.close()


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,identity", "br", "deflate", "x" * 1000])
def test_an_answer_of_an_api_server_is_decompressed_once_only(tmp_path: Path, encoding: str) -> None:
    with HttpTarget() as server:
        server.headers = {"Content-Encoding": encoding}
        kube = kubernetes(server.url, tmp_path)
        with pytest.raises(KubernetesError, match="unknown encoding") as error:
            kube.nodes()
        kube.close()
    assert len(str(error.value)) < 200
    assert {one.headers["Accept-Encoding"] for one in server.seen} == {"gzip"}


@pytest.mark.parametrize("header", [b"Retry-After: nan", b"Retry-After: -9", b"Date: Sat, 1 Jan 99999999999999 0:0:0"])
def test_odd_headers_of_an_api_server_are_no_times(tmp_path: Path, header: bytes) -> None:
    answer = b"HTTP/1.1 503 Busy\r\n" + header + b"\r\nContent-Length: 2\r\n\r\n{}"
    with a_server_that([answer]) as port:
        kube = kubernetes(f"http://127.0.0.1:{port}", tmp_path)
        with pytest.raises(KubernetesError) as error:
            kube.version()
        kube.close()
    assert (error.value.status, error.value.retry_after, kube.skew()) == (503, 0.0, 0.0)
