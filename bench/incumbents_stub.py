"""A Bare Metal API that costs nothing: what ironic-inspector asks of Ironic, answered from memory.

Power changes and boot devices take effect at once, and nothing is validated. It is a process of its own, whose CPU
time is not counted as ironic-inspector's. Run as ``python -m bench.incumbents_stub``; it answers its first line of
input with its address, and ends with its input.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import httptools
import msgspec

Document = dict[str, Any]

_VERSION: Final = {"id": "v1", "status": "CURRENT", "min_version": "1.1", "version": "1.96"}
_POWERS: Final = {"rebooting": "power on"}
_PHRASES: Final = {200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 404: "Not Found", 409: "Conflict"}
_VALID: Final = {name: {"result": True, "reason": None} for name in ("power", "management", "inspect", "boot")}


class Nodes:
    """Nodes by UUID and ports by MAC."""

    def __init__(self, url: str = "") -> None:
        self._version = {**_VERSION, "links": [{"href": f"{url}/v1/", "rel": "self"}]}
        self._nodes: dict[str, Document] = {}
        self._ports: dict[str, Document] = {}

    def answer(self, method: str, target: str, body: Any = None) -> tuple[int, Document | None]:
        """Return status and document of a call."""
        parts = urlsplit(target)
        words = parts.path.strip("/").split("/")
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match words:
            case [""]:
                return 200, {"versions": [self._version], "default_version": self._version}
            case ["v1"]:
                return 200, {"id": "v1", "version": self._version, "links": self._version["links"]}
            case ["v1", "nodes", *rest]:
                return self._answer_nodes(method, rest, body)
            case ["v1", "ports", *rest]:
                return self._answer_ports(method, rest, query, body)
        return 404, _error(f"there is no {method} {target}")

    def _answer_nodes(self, method: str, words: list[str], body: Any) -> tuple[int, Document | None]:
        if not words or words == ["detail"]:
            return (200, {"nodes": list(self._nodes.values())}) if method == "GET" else (201, self._add_node(body))
        node = self._nodes.get(words[0])
        if node is None:
            return 404, _error(f"there is no node {words[0]}")
        match words[1:]:
            case []:
                return 200, _patched(node, body or [])
            case ["validate"]:
                return 200, _VALID
            case ["states", "power"]:
                node["power_state"] = _POWERS.get(body["target"], body["target"])
                return 202, None
            case ["states", "provision"]:
                node["provision_state"] = "manageable"
                return 202, None
            case ["management", "boot_device"]:
                return 204, None
        return 404, _error(f"there is no {'/'.join(words)}")

    def _answer_ports(
        self, method: str, words: list[str], query: dict[str, str], body: Any
    ) -> tuple[int, Document | None]:
        if method == "POST":
            if body["address"] in self._ports:
                return 409, _error(f"there is a port {body['address']} already")
            port = self._ports[body["address"]] = {"uuid": str(uuid4()), "pxe_enabled": True, "extra": {}, **body}
            return 201, port
        if words and words != ["detail"]:
            found = next((port for port in self._ports.values() if port["uuid"] == words[0]), None)
            return (200, _patched(found, body or [])) if found else (404, _error(f"there is no port {words[0]}"))
        node, address = query.get("node") or query.get("node_uuid"), query.get("address")
        ports = [
            port
            for port in self._ports.values()
            if node in (None, port["node_uuid"]) and address in (None, port["address"])
        ]
        return 200, {"ports": ports}

    def _add_node(self, body: Document) -> Document:
        uuid = str(uuid4())
        states = {"provision_state": "enroll", "power_state": "power off", "maintenance": False, "last_error": None}
        empty: Document = {name: {} for name in ("driver_info", "properties", "extra", "instance_info")}
        self._nodes[uuid] = {"uuid": uuid, **states, **empty, **body}
        return self._nodes[uuid]


def _patched(found: Document, patches: list[Document]) -> Document:
    """Apply a JSON patch of additions, replacements and removals."""
    for patch in patches:
        *parents, last = patch["path"].strip("/").split("/")
        inner = found
        for name in parents:
            inner = inner.setdefault(name, {})
        if patch["op"] == "remove":
            inner.pop(last, None)
        else:
            inner[last] = patch["value"]
    return found


def _error(text: str) -> Document:
    return {"error_message": {"faultstring": text, "faultcode": "Client", "debuginfo": None}}


class Connection(asyncio.Protocol):
    """One client, which sends its next request after the answer to the last one."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
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
        status, document = self._nodes.answer(self._parser.get_method().decode(), target, body)
        content = b"" if document is None else msgspec.json.encode(document)
        length = "" if status == 204 else f"Content-Length: {len(content)}\r\n"
        self._transport.write(
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nContent-Type: application/json\r\n{length}"
            f"X-OpenStack-Ironic-API-Version: {_VERSION['version']}\r\n\r\n".encode()
            + content
        )


async def main() -> None:
    """Serve until the input ends."""
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    nodes = Nodes(url)
    await loop.create_server(lambda: Connection(nodes), sock=listener)
    sys.stdout.write(msgspec.json.encode({"url": url}).decode() + "\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main())
