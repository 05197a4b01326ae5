"""A browser without scripts, over the real application: it keeps the cookie, and sends forms as a browser does."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

import falcon.testing

from ferroscope.api.auth.identity import local
from ferroscope.core.delivery import Fail
from ferroscope.core.states import Event
from ferroscope_client.core.reasons import Reason
from ferroscope_client.core.states import Provision
from tests.api.service import Service, callback_body
from tests.support import examples

IDENTITIES = {
    "root": local("root", "token", ["admin"]),
    "reader": local("reader", "token", ["reader"]),
    "a-admin": local("alba", "token", ["admin"], project="a"),
    "a-member": local("anna", "token", ["member"], project="a"),
    "a-reader": local("arno", "token", ["reader"], project="a"),
}
SAME = {"Sec-Fetch-Site": "same-origin", "Origin": "http://localhost:6385"}


class Browser:
    """Keeps the cookie, and sends forms as a browser does."""

    def __init__(self, service: Service, source: str | None = None) -> None:
        self._client = falcon.testing.TestClient(service.app)
        self._source = source
        self.cookie = ""
        self.view = ""  # the cookie of columns and page size

    def send(self, method: str, path: str, body: str | bytes = "", headers: dict[str, str] | None = None) -> Any:
        path, _, query = path.partition("?")
        cookies = "; ".join(filter(None, (self.cookie, self.view)))
        given = {"Cookie": cookies} if cookies else {}
        if method == "POST":
            given |= {"Content-Type": "application/x-www-form-urlencoded"} | SAME
        answer = self._client.simulate_request(
            method,
            path,
            query_string=query,
            body=body,
            headers=given | (headers or {}),
            host="localhost",
            port=6385,
            remote_addr=self._source,
        )
        if found := answer.headers.get("Set-Cookie"):
            assert "HttpOnly" in found
            assert "SameSite=Lax" in found
            kept = found.partition(";")[0]
            if kept.startswith("ferroscope-list="):
                self.view = kept
            else:
                self.cookie = kept
        return answer

    def get(self, path: str, **more: Any) -> Any:
        return self.send("GET", path, **more)

    def csrf(self, path: str = "/ui/login") -> str:
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.get(path).text)
        assert found is not None
        return found[1]

    def post(self, path: str, *, csrf: str | None = None, headers: dict[str, str] | None = None, **fields: Any) -> Any:
        token = self.token if csrf is None else csrf
        pairs = [("csrf", token)]
        for name, value in fields.items():
            pairs += [(name, one) for one in (value if isinstance(value, list) else [value])]
        return self.send("POST", path, urlencode(pairs), headers)

    def upload(self, path: str, *, file: tuple[str, bytes] | None = None, headers: Any = None, **fields: str) -> Any:
        """Send a form with a file, as ``(name, content)``."""
        mark = "----form-of-a-test"
        parts = [
            f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in ({"csrf": self.token} | fields).items()
        ]
        if file is not None:
            head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{file[0]}"\r\n'
            parts.append(f"{head}Content-Type: text/csv\r\n\r\n".encode() + file[1] + b"\r\n")
        body = b"".join(parts) + f"--{mark}--\r\n".encode()
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        return self.send("POST", path, body, kind | (headers or {}))

    token = ""

    def log_in(self, name: str) -> Browser:
        self.token = self.csrf()
        answer = self.post("/ui/login", token=name)
        assert answer.status_code == 303, answer.text
        found = re.search(r'name="csrf" value="([0-9a-f]{64})"', self.get("/ui").text)
        assert found is not None
        self.token = found[1]
        return self


def add(service: Service, name: str, **fields: Any) -> str:
    node = examples.node(name=name, **{"provision_state": Provision.MANAGEABLE, **fields})
    service.store.write(lambda tx: tx.nodes.add(node))
    return node.uuid


def call_back(service: Service, uuid: str, mac: str, **more: Any) -> None:
    """Start an inspection of the node, which has a port with this MAC, and let its machine call back."""
    root = {"X-Auth-Token": "root"}
    service.bare_metal.post("/v1/ports", {"node_uuid": uuid, "address": mac}, headers=root)
    service.bare_metal.put(f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"}, headers=root)
    service.consume()
    service.step(uuid, Event.WAIT)
    logs = {"logs": more.pop("logs")} if "logs" in more else {}
    body = callback_body(mac, **more) | logs
    assert service.bare_metal.post("/v1/continue_inspection", body, version="1.1").status_code == 202


def expect(service: Service, *conditions: str) -> None:
    """Expect this of all machines, and check those that are stored."""
    root = {"X-Auth-Token": "root"}
    body = {"expectations": [{"name": "rack 1", "expect": list(conditions)}]}
    assert service.bare_metal.put("/v1/expectations", body, headers=root).status_code == 200
    assert service.bare_metal.post("/v1/expectations/check", headers=root).status_code == 200


def failed(service: Service, name: str, reason: Reason, **fields: Any) -> str:
    """Enroll a node whose inspection has failed."""
    uuid = add(service, name, **fields)
    browser = Browser(service).log_in("root")
    assert browser.post("/ui/machines/act", action="inspect", node=uuid, confirm="yes").status_code == 200
    service.consume()
    service.step(uuid, Event.FAIL, Fail(reason, "it failed"))
    return uuid


class Elements(HTMLParser):
    """The tags with their attributes, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def hidden(self, name: str) -> str:
        """Return the value of the hidden field of this name."""
        (value,) = {tag[1]["value"] for tag in self.tags if tag[0] == "input" and tag[1].get("name") == name}
        assert value is not None
        return value


def text_of(answer: Any) -> str:
    """Return the text of a page, with single spaces."""
    return " ".join(Elements(answer.text).text.split())
