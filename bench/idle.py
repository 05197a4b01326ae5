"""``idle``: what other callers feel of thousands of connections that do nothing, and of half-sent bodies.

With ``--tls`` over HTTPS: idle connections have completed their handshake, and others never complete theirs.

One api process with default settings. The connections come from many addresses of the loopback, then all from one; the
others' calls are new connections each, timed from before they connect.
"""

from __future__ import annotations

import http.client
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click
import msgspec

from bench.cycle import scratch
from bench.databases import database
from bench.figures import Figure
from bench.report import Report
from bench.service import service
from bench.usage import memory
from tests.support.certificates import Authority

_CALLS: Final = 300
_SPARE: Final = 512
_PATH: Final = "/v1/nodes?limit=1"
_SLOW: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the beginning of a ClientHello
_HALF: Final = (
    b"POST /v1/continue_inspection HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"[" * 30_000
)


class Felt(msgspec.Struct, frozen=True):
    """Milliseconds of the others' calls while ``crowd`` was there; ``failed`` of them had no 200."""

    crowd: str
    p50: float
    p99: float
    longest: float
    failed: int
    rss: float


class Crowd(msgspec.Struct, frozen=True):
    """So many connections from so many addresses, which send this; ``shake``: after a TLS handshake."""

    name: str
    count: int
    sent: bytes
    addresses: int
    shake: bool


def measure(directory: Path, *, idle: int, half_sent: int, slow: int, tls: bool) -> list[Felt]:
    """Return what was felt without a crowd, and of each of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - _SPARE if hard != resource.RLIM_INFINITY else idle
    idle = min(idle, room)
    crowds = [
        Crowd("nobody", 0, b"", 1, tls),
        Crowd(f"{idle} idle connections from 250 addresses", idle, b"", 250, tls),
        Crowd(f"{idle} idle connections from one address", idle, b"", 1, tls),
        Crowd(f"{half_sent} half-sent bodies from 250 addresses", half_sent, _HALF, 250, tls),
        Crowd(f"{half_sent} half-sent bodies from one address", half_sent, _HALF, 1, tls),
    ]
    if tls:
        crowds.append(Crowd(f"{slow} slow handshakes from 250 addresses", slow, _SLOW, 250, False))
    try:
        with (
            scratch(directory) as place,
            database("sqlite", place) as base,
            service(place, base.url, roles=("api",), api=_certificate(place) if tls else "") as running,
        ):
            trust = ssl.create_default_context(cafile=str(place / "ca.pem")) if tls else None
            port = int(urlsplit(running.url).port or 0)
            pid = running.roles["api"].pid
            found = []
            for crowd in crowds:
                with _crowd(port, crowd, trust) as others, _dribbling(others if crowd.sent == _SLOW else []):
                    took, failed = _calls(port, trust)
                    found.append(_felt(crowd.name, took, failed, memory(pid).rss))
            return found
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _felt(name: str, took: Sequence[float], failed: int, rss: float) -> Felt:
    ordered = sorted(seconds * 1000 for seconds in took)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    return Felt(name, ordered[len(ordered) // 2], p99, ordered[-1], failed, rss)


def _certificate(place: Path) -> str:
    pair = Authority(place).issue("server")
    return f"tls_certificate_file = {pair.certificate}\ntls_key_file = {pair.key}\n"


@contextmanager
def _crowd(port: int, crowd: Crowd, trust: ssl.SSLContext | None) -> Iterator[list[socket.socket]]:
    """Have so many connections for a while; where the server closes some of them, that is its affair."""
    with ExitStack() as open_ones:
        members = []
        for number in range(crowd.count):
            one = open_ones.enter_context(socket.socket())
            one.settimeout(10)
            one.bind((f"127.{number % crowd.addresses}.0.9", 0))
            one.connect(("127.0.0.1", port))
            if trust is not None and crowd.shake:
                one = open_ones.enter_context(trust.wrap_socket(one, server_hostname="127.0.0.1"))
            if crowd.sent:
                one.sendall(crowd.sent)
            members.append(one)
        yield members


@contextmanager
def _dribbling(members: Sequence[socket.socket]) -> Iterator[None]:
    """Let each of them send a byte per second."""
    over = threading.Event()

    def send() -> None:
        while members and not over.wait(1.0):
            for one in members:
                with suppress(OSError):
                    one.send(b"\0")

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def _connection(port: int, trust: ssl.SSLContext | None) -> http.client.HTTPConnection:
    if trust is None:
        return http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=trust)


def _calls(port: int, trust: ssl.SSLContext | None) -> tuple[list[float], int]:
    took, failed = [], 0
    for _ in range(_CALLS):
        began = time.perf_counter()
        connection = _connection(port, trust)
        try:
            connection.request("GET", _PATH, headers={"X-OpenStack-Ironic-API-Version": "1.81"})
            failed += connection.getresponse().status != 200
        except OSError:
            failed += 1
        finally:
            connection.close()
        took.append(time.perf_counter() - began)
        time.sleep(0.005)
    return took, failed


@click.command("idle")
@click.pass_obj
@click.option("--idle", default=10_000, show_default=True, help="Connections that do nothing.")
@click.option("--half-sent", default=1_000, show_default=True, help="Connections that send half of a body.")
@click.option("--slow", default=500, show_default=True, help="TLS handshakes that go on forever, with --tls.")
@click.option("--tls", is_flag=True, help="Over HTTPS.")
def command(found: tuple[Report, Path], idle: int, half_sent: int, slow: int, tls: bool) -> None:
    """What others feel of idle connections and half-sent bodies."""
    report, directory = found
    scheme = "https" if tls else "http"
    report.section(f"idle: one api process on SQLite, {scheme}; 300 calls of others, a new connection each")
    felt = measure(directory, idle=idle, half_sent=half_sent, slow=slow, tls=tls)
    rows = [
        (one.crowd, f"{one.p50:.1f}", f"{one.p99:.1f}", f"{one.longest:.1f}", str(one.failed), f"{one.rss:.0f}")
        for one in felt
    ]
    report.table(("beside", "p50 ms", "p99 ms", "longest ms", "failed", "RSS MiB"), rows)
    report.keep("idle", felt)
    report.wrong([f"{one.failed} calls failed beside {one.crowd}" for one in felt if one.failed])
    worst = max(one.p99 for one in felt[1:])
    report.found(Figure("others' calls beside a crowd, p99 ms", "sqlite", worst))
