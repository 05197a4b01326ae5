"""Object stores that are slow, silent, busy or not there: each try has its end, and the stop flag ends the pauses."""

from __future__ import annotations

import socket
import threading
from typing import Final

import pytest

from ferroscope.config.options import S3Settings
from ferroscope.contracts.remote import ObjectStoreError, WebError
from ferroscope.remote.bounded_http import WebClient
from ferroscope.storage.object_http import RetryPolicy
from ferroscope.storage.s3 import S3Store
from tests.support.bad_server import a_server_that, one_by_one
from tests.support.processes import HOURS, finished

_OK: Final = b"HTTP/1.1 200 OK\r\n"
_TLS_RECORD: Final = b"\x16\x03\x03\x40\x00"  # announces 16 KiB of handshake


def client(port: int, *, timeout: float = 0.3, retries: int = 0, scheme: str = "http") -> S3Store:
    patience = RetryPolicy(timeout=timeout, retries=retries, pause=0.01)
    return S3Store(S3Settings(endpoint=f"{scheme}://127.0.0.1:{port}"), patience)


def test_a_server_that_says_nothing_is_not_waited_for() -> None:
    with a_server_that([]) as port, pytest.raises(ObjectStoreError, match="timed out"):
        client(port).get("k")


@pytest.mark.parametrize(
    ("scheme", "sends"),
    [
        ("http", _OK + b"X-Long: " + b"x" * 5000),
        ("http", _OK + (b"X: " + b"y" * 100 + b"\r\n") * 90),
        ("http", _OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000),
        ("http", _OK + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 500),
        ("https", _TLS_RECORD + b"\0" * 5000),
    ],
    ids=["header", "headers", "body", "chunks", "tls"],
)
def test_a_server_that_says_a_byte_now_and_then_is_not_waited_for(scheme: str, sends: bytes) -> None:
    # Any two bytes come within a time that each wait of the socket allows.
    late = pytest.raises(ObjectStoreError, match=r"timed out after 0\.8 s")
    with a_server_that(one_by_one(sends), pause=0.01) as port, late:
        client(port, timeout=0.8, scheme=scheme).get("k")
    assert port.heard_out == 0


def test_every_try_has_the_same_time() -> None:
    with a_server_that(one_by_one(_OK + b"X: " + b"y" * 9000), pause=0.01) as port:
        with pytest.raises(ObjectStoreError, match=r"timed out after 0\.5 s"):
            client(port, timeout=0.5, retries=2).get("k")
        assert (port.calls, port.heard_out) == (3, 0)


def test_a_server_that_takes_nothing_is_not_waited_for() -> None:
    late = pytest.raises(ObjectStoreError, match=r"timed out after 0\.5 s")
    with a_server_that([], reads=False) as port, late:
        client(port, timeout=0.5).put("k", bytes(50_000_000))


def test_whom_a_rule_calls_is_not_waited_for_either() -> None:
    with a_server_that(one_by_one(_OK + b"X: " + b"y" * 9000), pause=0.01) as port:
        for proxy in (None, f"http://127.0.0.1:{port}"):
            with pytest.raises(WebError, match=r"timed out after 0\.5 s"):
                WebClient().get(f"http://127.0.0.1:{port}/", headers={}, timeout=0.5, proxy=proxy)
        assert port.heard_out == 0


def test_busy_is_tried_again_but_not_for_ever() -> None:
    busy = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with a_server_that([busy]) as port, pytest.raises(ObjectStoreError, match="503"):
        client(port, timeout=5.0, retries=1).put("k", b"1")


def test_nobody_there() -> None:
    with pytest.raises(ObjectStoreError, match="NewConnectionError"):
        client(_nobody()).put("k", b"1")


@pytest.mark.parametrize("wait", [0.0, 0.3])
def test_the_stop_flag_ends_the_pauses(wait: float) -> None:
    stop = threading.Event()
    patience = RetryPolicy(timeout=1.0, retries=5, pause=HOURS, stop=stop)
    timer = threading.Timer(wait, stop.set)
    timer.start()
    store = S3Store(S3Settings(endpoint=f"http://127.0.0.1:{_nobody()}"), patience)
    with pytest.raises(ObjectStoreError, match="cannot reach"):
        finished(lambda: store.get("k"))
    timer.join()


def _nobody() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
