"""A Redfish service in this process, made of a dictionary: what a BMC has, and what it does with commands.

``documents`` are the resources by path. ``upon`` has what a command does; without an entry it is answered 204 and
ignored, as some BMCs do. ``first`` are answers that come before anything else, each once, for paths that end with it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from ferroscope.core.model import Node
from tests.support.http_body import whole_body

SYSTEM: Final = "/redfish/v1/Systems/1"
MANAGER: Final = "/redfish/v1/Managers/1"
SESSIONS: Final = "/redfish/v1/SessionService/Sessions"
USER, PASSWORD = "operator", "pa55-of-the-BMC"

Answer = tuple[int, dict[str, str], bytes]
Command = Callable[[dict[str, Any]], "Answer | None"]


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def collection(*paths: str) -> dict[str, Any]:
    return {"Name": "Collection", "Members": [link(path) for path in paths], "Members@odata.count": len(paths)}


def answer(status: int, body: object = None, **headers: str) -> Answer:
    """Return an answer; the names of headers have underscores."""
    raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return status, {name.replace("_", "-"): value for name, value in headers.items()}, raw


def node_at(url: str, **more: Any) -> Node:
    info = {"redfish_address": url, "redfish_username": USER, "redfish_password": PASSWORD} | more
    return Node(uuid="aaaaaaaa-0000-4000-8000-000000000001", driver="redfish", driver_info=info)


class ScriptedBmc:
    """The service at ``url``; ``seen`` are the requests: method, path, body."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {
            "/redfish/v1/": {
                "Id": "Root",
                "Name": "Root",
                "RedfishVersion": "1.6.0",
                "Systems": link("/redfish/v1/Systems"),
                "Managers": link("/redfish/v1/Managers"),
            },
            "/redfish/v1/Systems": collection(SYSTEM),
            "/redfish/v1/Managers": collection(MANAGER),
            MANAGER: {"Id": "1", "Name": "BMC"},
            SYSTEM: {
                "Id": "1",
                "Name": "System",
                "PowerState": "On",
                "Boot": {
                    "BootSourceOverrideEnabled": "Disabled",
                    "BootSourceOverrideTarget": "None",
                    "BootSourceOverrideMode": "UEFI",
                    "BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe", "Cd", "Hdd"],
                },
                "Links": {"ManagedBy": [link(MANAGER)]},
                "Actions": {
                    "#ComputerSystem.Reset": {
                        "target": f"{SYSTEM}/Actions/ComputerSystem.Reset",
                        "ResetType@Redfish.AllowableValues": ["On", "ForceOff", "ForceRestart"],
                    }
                },
            },
        }
        self.upon: dict[tuple[str, str], Command] = {}
        self.first: list[tuple[str, Answer]] = []
        self.seen: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.sessions: set[str] | None = None  # a set: the service has sessions
        self.location = ""  # of the sessions' addresses
        self.arrives: Callable[[], object] = lambda: None  # called before each answer
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.bmc = self
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def system(self) -> dict[str, Any]:
        found: dict[str, Any] = self.documents[SYSTEM]
        return found

    def has(self, path: str, document: Any = None, **more: Any) -> None:
        """Have this resource."""
        name = path.rpartition("/")[2]
        self.documents[path] = document if document is not None else {"Id": name, "Name": name, **more}

    def will(self, *answers: Answer, at: str = "", times: int = 1) -> None:
        """Answer the next requests for paths that end with ``at`` like this."""
        self.first += [(at, one) for one in answers for _ in range(times)]

    def asked(self, method: str, path: str = "") -> list[Any]:
        """Return the bodies of the requests with this method whose paths have ``path`` in them."""
        return [body for how, where, body in self.seen if how == method and path in where]

    def node(self, **more: Any) -> Node:
        return node_at(self.url, **more)

    def answer(self, method: str, path: str, body: Any) -> Answer:
        for index, (where, planned) in enumerate(self.first):
            if path.endswith(where):
                del self.first[index]
                return planned
        if self.sessions is not None and path.startswith(SESSIONS):
            return self._session(method, path)
        if (command := self.upon.get((method, path))) is not None:
            return command(body) or answer(204)
        if method != "GET":
            return answer(204)
        found = self.documents.get(path)
        return answer(404) if found is None else found if isinstance(found, tuple) else answer(200, found)

    def _session(self, method: str, path: str) -> Answer:
        assert self.sessions is not None
        if method == "DELETE":
            self.sessions.discard(path)
            return answer(204)
        place = f"{SESSIONS}/{len(self.seen)}"
        self.sessions.add(place)
        return answer(201, {}, X_Auth_Token="token", Location=self.location + place)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    bmc: ScriptedBmc

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server

    def _handle(self) -> None:
        raw = whole_body(self)
        body = json.loads(raw) if raw else None
        self.server.bmc.seen.append((self.command, self.path, body))
        self.server.bmc.headers.append(dict(self.headers.items()))
        self.server.bmc.arrives()
        status, headers, content = self.server.bmc.answer(self.command, self.path, body)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815  # http.server's names

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the overridden method
        pass


@contextmanager
def scripted_bmc() -> Iterator[ScriptedBmc]:
    """Run a service until the end of the block."""
    bmc = ScriptedBmc()
    try:
        yield bmc
    finally:
        bmc.close()
