"""A Bare Metal API that costs nothing: what ironic-inspector asks of Ironic, answered from memory.

Power changes and boot devices take effect at once, and nothing is validated. It is a process of its own, whose CPU
time is not counted as ironic-inspector's. Run as ``python -m bench.incumbents_stub``.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httptools
import msgspec

from bench.load_process import serve_async

Document = dict[str, Any]

_VERSION: Final = {"id": "v1", "status": "CURRENT", "min_version": "1.1", "version": "1.96"}
_PHRASES: Final = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 404: "Not Found", 409: "Conflict"}
_VALID: Final = {name: {"result": True, "reason": None} for name in ("power", "management", "inspect", "boot")}


class Registry:
    """Nodes by UUID and ports by MAC."""

    def __init__(self) -> None:
        self.url = ""
        self._nodes: dict[str, Document] = {}
        self._ports: dict[str, Document] = {}

    def answer(self, method: str, target: str, body: Any) -> tuple[int, Document | None]:
        """Return status and document of a call."""
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        version = {**_VERSION, "links": [{"href": f"{self.url}/v1/", "rel": "self"}]}
        match [method, *parts.path.strip("/").split("/")]:
            case [_, ""]:
                return 200, {"versions": [version], "default_version": version}
            case [_, "v1"]:
                return 200, {"id": "v1", "version": version, "links": version["links"]}
            case ["POST", "v1", "nodes"]:
                return 201, self._add_node(body)
            case ["GET", "v1", "nodes"] | ["GET", "v1", "nodes", "detail"]:
                return 200, {"nodes": list(self._nodes.values())}
            case [_, "v1", "nodes", uuid, *words] if uuid in self._nodes:
                return self._answer_node(self._nodes[uuid], words, body)
            case ["POST", "v1", "ports"]:
                if body["address"] in self._ports:
                    return 409, _error(f"there is a port {body['address']} already")
                port = {"uuid": str(uuid4()), "pxe_enabled": True, "extra": {}, **body}
                self._ports[body["address"]] = port
                return 201, port
            case [_, "v1", "ports"] | [_, "v1", "ports", "detail"]:
                node, address = query.get("node") or query.get("node_uuid"), query.get("address")
                ports = self._ports.values()
                matching = [
                    port for port in ports if node in (None, port["node_uuid"]) and address in (None, port["address"])
                ]
                return 200, {"ports": matching}
            case [_, "v1", "ports", uuid]:
                for port in self._ports.values():
                    if port["uuid"] == uuid:
                        return 200, _patch(port, body or [])
        return 404, _error(f"there is no {method} {target}")

    def _answer_node(self, node: Document, words: list[str], body: Any) -> tuple[int, Document | None]:
        match words:
            case []:
                return 200, _patch(node, body or [])
            case ["validate"]:
                return 200, _VALID
            case ["states", "power"]:
                node["power_state"] = "power on" if body["target"] == "rebooting" else body["target"]
                return 202, None
            case ["states", "provision"]:
                node["provision_state"] = "manageable"
                return 202, None
            case ["management", "boot_device"]:
                return 204, None
        return 404, _error(f"there is no {'/'.join(words)}")

    def _add_node(self, body: Document) -> Document:
        uuid = str(uuid4())
        states = {"provision_state": "enroll", "power_state": "power off", "maintenance": False, "last_error": None}
        empty: Document = {name: {} for name in ("driver_info", "properties", "extra", "instance_info")}
        self._nodes[uuid] = {"uuid": uuid, **states, **empty, **body}
        return self._nodes[uuid]


def _patch(document: Document, patches: list[Document]) -> Document:
    """Apply a JSON patch of additions, replacements and removals."""
    for patch in patches:
        *parents, last = patch["path"].strip("/").split("/")
        inner = document
        for name in parents:
            inner = inner.setdefault(name, {})
        if patch["op"] == "remove":
            inner.pop(last, None)
        else:
            inner[last] = patch["value"]
    return document


def _error(text: str) -> Document:
    return {"error_message": {"faultstring": text, "faultcode": "Client", "debuginfo": None}}


class Connection(asyncio.Protocol):
    """One client, which sends its next request after the answer to the last one."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._parser = httptools.HttpRequestParser(self)
        self._target, self._body = b"", b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        """Answer."""
        target, body = self._target.decode(), msgspec.json.decode(self._body) if self._body else None
        self._target, self._body = b"", b""
        status, document = self._registry.answer(self._parser.get_method().decode(), target, body)
        content = b"" if document is None else msgspec.json.encode(document)
        length = "" if status == 204 else f"Content-Length: {len(content)}\r\n"
        self._transport.write(
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: application/json\r\n{length}"
            f"X-OpenStack-Ironic-API-Version: {_VERSION['version']}\r\n\r\n".encode()
            + content
        )


async def main() -> None:
    registry = Registry()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(registry), "127.0.0.1", 0)
    registry.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def address() -> str:
        return registry.url

    await serve_async(address=address)


if __name__ == "__main__":
    asyncio.run(main())
