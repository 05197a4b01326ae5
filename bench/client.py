"""The driver's side of HTTP: a few kept connections in one event loop, cheap enough to stand beside
what is measured. Everything that it does not expect is an error.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from ferroscope_sim.callbacks import Wire
from ferroscope_sim.ramdisk import Answer

VERSION: Final = "1.81"
_TIMEOUT: Final = 60.0


class ApiError(Exception):
    """The API did not answer as it should."""


def request(method: str, host: str, path: str, body: object = None, version: str = VERSION) -> bytes:
    """Return the bytes of a request to the Bare Metal API."""
    content = b"" if body is None else msgspec.json.encode(body)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nAccept: application/json\r\n"
        f"X-OpenStack-Ironic-API-Version: {version}\r\n"
    )
    if content:
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
    return head.encode() + b"\r\n" + content


class Api:
    """The Bare Metal API at ``url``; as many connections as there are calls at once."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://").rstrip("/")
        self._name, _, self._port = self.host.rpartition(":")
        self._waiting: list[Wire] = []

    async def call(self, method: str, path: str, body: object = None, version: str = VERSION) -> Answer:
        """Return the answer, whatever its status."""
        wire = await self._take()
        expected = wire.expect(_TIMEOUT)
        wire.write(request(method, self.host, path, body, version))
        answer = await expected
        if wire.open:
            self._waiting.append(wire)
        return answer

    async def get(self, path: str) -> Any:
        """Return the decoded document at ``path``."""
        answer = await self.call("GET", path)
        if answer.status != 200:
            raise ApiError(f"GET {path}: {answer.status} {answer.body[:300].decode(errors='replace')}")
        return msgspec.json.decode(answer.body)

    async def nodes(self, fields: str) -> list[dict[str, Any]]:
        """Return these fields of all nodes, page by page; ``uuid`` must be one of them."""
        found: list[dict[str, Any]] = []
        marker = ""
        while True:
            page = await self.get(f"/v1/nodes?limit=1000&fields={fields}{marker}")
            found.extend(page["nodes"])
            if not page.get("next") or not page["nodes"]:
                return found
            marker = f"&marker={page['nodes'][-1]['uuid']}"

    def close(self) -> None:
        for wire in self._waiting:
            wire.close()
        self._waiting.clear()

    async def _take(self) -> Wire:
        while self._waiting:
            wire = self._waiting.pop()
            if wire.open:
                return wire
        _, wire = await asyncio.get_running_loop().create_connection(Wire, self._name, int(self._port))
        return wire
