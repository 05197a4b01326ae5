"""The process that reads: kept connections, each sending its next request when it has its answer.

Run as ``python -m bench.reader``, told by JSON lines. It reads what our server sends (answers with a
Content-Length) and does next to nothing else, so that its share of the processors stays small.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import sys
import time
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from bench.client import request
from bench.quantiles import Spread, spread

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)


class Order(msgspec.Struct, frozen=True):
    """Read ``paths`` in turn over ``connections`` for ``seconds``, after ``warm`` seconds that do not count."""

    host: str
    paths: list[str]
    connections: int
    seconds: float = 3.0
    warm: float = 0.5


class Reading(msgspec.Struct, frozen=True):
    """``errors``: answers other than 200, and connections that were lost."""

    connections: int
    rate: float
    latency: Spread
    bytes_each: float
    errors: int


class Reader(asyncio.Protocol):
    """One connection."""

    def __init__(self, requests: Iterator[bytes], began: float, until: float) -> None:
        self._requests = requests
        self._began = began
        self._until = until
        self._sent = 0.0
        self._got = b""
        self._expected = 0
        self.latencies: list[float] = []
        self.bytes = 0
        self.errors = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._next()

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._expected and not self._head():
            return
        if len(self._got) < self._expected:
            return
        now = time.perf_counter()
        if self._sent >= self._began:
            self.latencies.append(now - self._sent)
            self.bytes += self._expected
        self._got, self._expected = self._got[self._expected :], 0
        if now < self._until:
            self._next()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if time.perf_counter() < self._until:
            self.errors += 1
        self.done.set_result(None)

    def _next(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(next(self._requests))

    def _head(self) -> bool:
        end = self._got.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(self._got, 0, end + 2)
        if length is None:
            raise ValueError(f"an answer without a length: {self._got[:200]!r}")
        self.errors += not self._got.startswith(b"HTTP/1.1 200 ")
        self._expected = end + 4 + int(length[1])
        return True


async def read(order: Order) -> Reading:
    """Carry out one order."""
    requests = itertools.cycle([request("GET", order.host, path) for path in order.paths])
    name, _, port = order.host.rpartition(":")
    began = time.perf_counter() + order.warm
    loop = asyncio.get_running_loop()
    readers = [
        (await loop.create_connection(lambda: Reader(requests, began, began + order.seconds), name, int(port)))[1]
        for _ in range(order.connections)
    ]
    await asyncio.gather(*(reader.done for reader in readers))
    latencies = [latency for reader in readers for latency in reader.latencies]
    return Reading(
        connections=order.connections,
        rate=len(latencies) / order.seconds,
        latency=spread(latencies),
        bytes_each=sum(reader.bytes for reader in readers) / max(len(latencies), 1),
        errors=sum(reader.errors for reader in readers),
    )


def main() -> None:
    """Serve orders until the input ends."""
    for line in sys.stdin.buffer:
        answer: Any = asyncio.run(read(msgspec.json.decode(line, type=Order)))
        sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
