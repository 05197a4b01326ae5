"""The driver's side of HTTP: a few kept connections in one event loop, cheap enough to stand beside
what is measured. Everything that it does not expect is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from ferroscope_sim.callbacks import Wire
from ferroscope_sim.ramdisk import RamdiskAnswer

T = TypeVar("T")

VERSION: Final = "1.81"
_TIMEOUT_SECONDS: Final = 60.0


class ApiError(Exception):
    """The API did not answer as it should."""


class Api:
    """The Bare Metal API at ``url``; as many connections as there are calls at once."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://").rstrip("/")
        self._name, _, self._port = self._host.rpartition(":")
        self._idle: list[Wire] = []

    async def call(self, method: str, path: str, body: object = None, version: str = VERSION) -> RamdiskAnswer:
        """Return the answer, whatever its status."""
        wire = await self._take()
        expected = wire.expect(_TIMEOUT_SECONDS)
        content = b"" if body is None else msgspec.json.encode(body)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self._host}\r\nAccept: application/json\r\n"
            f"X-OpenStack-Ironic-API-Version: {version}\r\n"
        )
        if content:
            head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
        wire.write(head.encode() + b"\r\n" + content)
        answer = await expected
        if wire.open:
            self._idle.append(wire)
        return answer

    async def ask(self, method: str, path: str, body: object, version: str = VERSION) -> None:
        """Call what is answered with 202."""
        answer = await self.call(method, path, body, version)
        if answer.status != 202:
            raise ApiError(f"{method} {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")

    async def inspect(self, uuid: str) -> None:
        await self.ask("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})

    async def get(self, path: str) -> Any:
        """Return the decoded document at ``path``."""
        answer = await self.call("GET", path)
        if answer.status != 200:
            raise ApiError(f"GET {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
        return msgspec.json.decode(answer.body)

    async def state(self, uuid: str) -> str:
        return str((await self.get(f"/v1/nodes/{uuid}?fields=provision_state"))["provision_state"])

    async def nodes(self, fields: str) -> list[dict[str, Any]]:
        """Return these fields of all nodes, page by page; ``uuid`` must be one of them."""
        nodes: list[dict[str, Any]] = []
        marker = ""
        while True:
            page = await self.get(f"/v1/nodes?limit=1000&fields={fields}{marker}")
            nodes.extend(page["nodes"])
            if not page.get("next") or not page["nodes"]:
                return nodes
            marker = f"&marker={page['nodes'][-1]['uuid']}"

    def close(self) -> None:
        for wire in self._idle:
            wire.close()
        self._idle.clear()

    async def _take(self) -> Wire:
        while self._idle:
            wire = self._idle.pop()
            if wire.open:
                return wire
        _, wire = await asyncio.get_running_loop().create_connection(Wire, self._name, int(self._port))
        return wire


async def for_each(items: Iterable[T], at_once: int, act: Callable[[T], Awaitable[None]]) -> None:
    """Do it with each, so many at a time."""
    waiting = iter(items)

    async def slot() -> None:
        for item in waiting:
            await act(item)

    await asyncio.gather(*(slot() for _ in range(at_once)))
