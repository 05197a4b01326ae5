"""``idle``: what other callers feel of thousands of connections that do nothing, and of half-sent bodies.

One api process with default settings. The connections come from many addresses of the loopback, then all from one; the
others' calls are new connections each, timed from before they connect.
"""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
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

_CALLS: Final = 300
_SPARE: Final = 512
_PATH: Final = "/v1/nodes?limit=1"
_HALF: Final = b"POST /v1/continue_inspection HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n" + b"[" * 30_000


class Felt(msgspec.Struct, frozen=True):
    """Milliseconds of the others' calls while ``crowd`` was there; ``failed`` of them had no 200."""

    crowd: str
    p50: float
    p99: float
    longest: float
    failed: int
    rss: float


def measure(directory: Path, *, idle: int, half_sent: int) -> list[Felt]:
    """Return what was felt without a crowd, and of each of them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    room = hard - _SPARE if hard != resource.RLIM_INFINITY else idle
    idle = min(idle, room)
    crowds: list[tuple[str, int, bytes, int]] = [
        ("nobody", 0, b"", 1),
        (f"{idle} idle connections from 250 addresses", idle, b"", 250),
        (f"{idle} idle connections from one address", idle, b"", 1),
        (f"{half_sent} half-sent bodies from 250 addresses", half_sent, _HALF, 250),
        (f"{half_sent} half-sent bodies from one address", half_sent, _HALF, 1),
    ]
    try:
        with (
            scratch(directory) as place,
            database("sqlite", place) as base,
            service(place, base.url, roles=("api",)) as running,
        ):
            port = int(urlsplit(running.url).port or 0)
            pid = running.roles["api"].pid
            found = []
            for name, count, sent, addresses in crowds:
                with _crowd(port, count, sent, addresses):
                    took, failed = _calls(port)
                    found.append(_felt(name, took, failed, memory(pid).rss))
            return found
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _felt(name: str, took: Sequence[float], failed: int, rss: float) -> Felt:
    ordered = sorted(seconds * 1000 for seconds in took)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    return Felt(name, ordered[len(ordered) // 2], p99, ordered[-1], failed, rss)


@contextmanager
def _crowd(port: int, count: int, sent: bytes, addresses: int) -> Iterator[None]:
    """Have so many connections for a while; where the server closes some of them, that is its affair."""
    with ExitStack() as open_ones:
        for number in range(count):
            one = open_ones.enter_context(socket.socket())
            one.settimeout(10)
            one.bind((f"127.{number % addresses}.0.9", 0))
            one.connect(("127.0.0.1", port))
            if sent:
                one.sendall(sent)
        yield


def _calls(port: int) -> tuple[list[float], int]:
    took, failed = [], 0
    for _ in range(_CALLS):
        began = time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
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
def command(found: tuple[Report, Path], idle: int, half_sent: int) -> None:
    """What others feel of idle connections and half-sent bodies."""
    report, directory = found
    report.section("idle: one api process on SQLite, default settings; 300 calls of others, a new connection each")
    felt = measure(directory, idle=idle, half_sent=half_sent)
    rows = [
        (one.crowd, f"{one.p50:.1f}", f"{one.p99:.1f}", f"{one.longest:.1f}", str(one.failed), f"{one.rss:.0f}")
        for one in felt
    ]
    report.table(("beside", "p50 ms", "p99 ms", "longest ms", "failed", "RSS MiB"), rows)
    report.keep("idle", felt)
    report.wrong([f"{one.failed} calls failed beside {one.crowd}" for one in felt if one.failed])
    worst = max(one.p99 for one in felt[1:])
    report.found(Figure("others' calls beside a crowd, p99 ms", "sqlite", worst))
