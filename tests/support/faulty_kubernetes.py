"""A small Kubernetes API server that misbehaves on request: for faults that a real one shows once in a year.

It keeps nodes, pods, leases, VolumeAttachments, claims and volumes with resource versions, and honors preconditions and
finalizers. ``faults`` are taken one by one, by the calls whose path they match.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.http_body import whole_body
from tests.support.processes import PATIENCE

Document = dict[str, Any]
Fault = Callable[["Handler"], None]

_COLLECTIONS = {
    "/api/v1/nodes": "nodes",
    "/api/v1/pods": "pods",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": "leases",
    "/apis/storage.k8s.io/v1/volumeattachments": "attachments",
    "/api/v1/persistentvolumes": "volumes",
    "/api/v1/persistentvolumeclaims": "claims",
}
_PODS_OF_NAMESPACE = re.compile(r"/api/v1/namespaces/([^/]+)/pods")
_REQUIREMENT = re.compile(r"([^ ,]+) (in|notin) \(([^)]*)\)|(!?)([^ ,]+)")
_NAMESPACED = {"pods": "pods", "persistentvolumeclaims": "claims"}


class FaultyKubernetes:
    """Use as a context manager; ``url`` is its address. ``denied`` are verb and resource that are forbidden.

    ``ahead``: so many seconds is its clock ahead. ``broken`` are paths that always answer 500.
    """

    def __init__(self, version: str = "20") -> None:
        self.version = version
        self.url = "http://not-entered"
        self.ahead = 0.0
        self.objects: dict[str, dict[str, Document]] = {name: {} for name in _COLLECTIONS.values()}
        self.faults: list[tuple[str, Fault]] = []
        self.broken: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.denied: set[tuple[str, str]] = set()
        self.events: list[Document] = []
        self.watch: list[bytes] = []
        self.budget = 1_000  # so many pods may be evicted
        self.released = threading.Event()
        self._version = 100

    def __enter__(self) -> FaultyKubernetes:
        handler = type("Bound", (Handler,), {"api": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = False
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def put(self, kind: str, document: Document) -> Document:
        """Add or replace an object, as a new version."""
        self._version += 1
        document["metadata"].setdefault("uid", f"uid-{document['metadata']['name']}")
        document["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind][document["metadata"]["name"]] = document
        return document

    def fail(self, path: str, fault: Fault) -> None:
        """Have the next call whose path ends so fail."""
        self.faults.append((path, fault))


def answering(status: int, message: str = "no", **headers: str) -> Fault:
    """Return the fault of an answer with this status."""
    return lambda call: call.answer(status, {"kind": "Status", "code": status, "message": message}, **headers)


def half(call: Handler) -> None:
    """Answer with a half of what was announced."""
    call.send_response(200)
    call.send_header("Content-Length", "1000")
    call.end_headers()
    call.wfile.write(b'{"items": [')
    call.close_connection = True


def hanging(call: Handler) -> None:
    """Do not answer."""
    call.api.released.wait(PATIENCE)
    call.close_connection = True


def nonsense(call: Handler) -> None:
    """Answer with what is not JSON."""
    call.send_response(200)
    call.send_header("Content-Length", "4")
    call.end_headers()
    call.wfile.write(b"<ht>")


class Handler(BaseHTTPRequestHandler):
    api: FaultyKubernetes
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, *_: object) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string((time.time() if timestamp is None else timestamp) + self.api.ahead)

    def answer(self, status: int, document: Document, **headers: str) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _serve(self) -> None:
        self.query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        self.body = json.loads(whole_body(self) or b"{}")
        self._dispatch()

    def _dispatch(self) -> None:
        api, parts = self.api, urlsplit(self.path)
        api.calls.append((self.command, parts.path))
        if parts.path in api.broken:
            answering(500)(self)
            return
        for fault in api.faults:
            if parts.path.endswith(fault[0]):
                api.faults.remove(fault)
                fault[1](self)
                return
        self._route(parts.path)

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815

    def _route(self, path: str) -> None:
        api = self.api
        if path == "/version":
            self.answer(200, {"major": "1", "minor": api.version, "gitVersion": f"v1.{api.version}.0"})
        elif path == "/readyz":
            self.answer(200, {})
        elif path.endswith("selfsubjectaccessreviews"):
            asked = self.body["spec"]["resourceAttributes"]
            allowed = (asked["verb"], asked["resource"]) not in api.denied
            self.answer(201, {"status": {"allowed": allowed}})
        elif path.endswith("/events"):
            api.events.append(self.body)
            self.answer(201, {})
        elif path.endswith("/eviction"):
            self._evict(path.removesuffix("/eviction"))
        elif path in _COLLECTIONS:
            self._listed(_COLLECTIONS[path])
        elif found := _PODS_OF_NAMESPACE.fullmatch(path):
            self._listed("pods", found[1])
        else:
            self._one(path)

    def _listed(self, kind: str, namespace: str = "") -> None:
        if "watch" in self.query:
            self.send_response(200)
            self.end_headers()
            for line in self.api.watch or self._changes(int(self.query.get("resourceVersion") or 0)):
                self.wfile.write(line)
            self.close_connection = True
            return
        found = list(self.api.objects[kind].values())
        if selected := self.query.get("fieldSelector"):
            found = [one for one in found if one["spec"].get("nodeName") == selected.partition("=")[2]]
        if namespace:
            found = [one for one in found if one["metadata"].get("namespace") == namespace]
        if selector := self.query.get("labelSelector"):
            found = [one for one in found if _is_selected(one["metadata"].get("labels") or {}, selector)]
        start, limit = int(self.query.get("continue", "0")), int(self.query.get("limit", "500"))
        meta = {"resourceVersion": str(self.api._version)}
        if start + limit < len(found):
            meta["continue"] = str(start + limit)
        self.answer(200, {"metadata": meta, "items": found[start : start + limit]})

    def _changes(self, since: int) -> Iterator[bytes]:
        """Yield the nodes that have changed since this version, each as a row of a table; then the watch ends."""
        for document in list(self.api.objects["nodes"].values()):
            metadata = document["metadata"]
            if int(metadata["resourceVersion"]) > since:
                ready = [one["status"] for one in document["status"]["conditions"] if one["type"] == "Ready"]
                row = {
                    "cells": [metadata["name"], "Ready" if ready == ["True"] else "NotReady"],
                    "object": {"metadata": metadata},
                }
                yield json.dumps({"type": "MODIFIED", "object": {"kind": "Table", "rows": [row]}}).encode() + b"\n"

    def _evict(self, path: str) -> None:
        if self.api.budget <= 0:
            self.answer(429, {"message": "budget"})
            return
        self.api.budget -= 1
        self.body, self.command = self.body["deleteOptions"], "DELETE"
        self._one(path)

    def _one(self, path: str) -> None:
        api = self.api
        if path.endswith("/status"):
            self._conditions(path.removesuffix("/status").rpartition("/")[2])
            return
        parent, _, name = path.rpartition("/")
        kind = _NAMESPACED.get(parent.rpartition("/")[2]) or _COLLECTIONS[parent]
        document = self.api.objects[kind].get(name)
        if document is None:
            self.answer(404, {"message": "not found"})
            return
        meta = document["metadata"]
        if self.command == "GET":
            self.answer(200, document)
        elif self.command == "DELETE":
            if any(meta[key] != value for key, value in self.body["preconditions"].items()):
                self.answer(409, {"message": "precondition failed"})
                return
            if meta.get("finalizers"):
                meta |= {"deletionTimestamp": "2026-11-22T10:00:00Z", "deletionGracePeriodSeconds": 0}
                self.answer(200, api.put(kind, document))
                return
            del api.objects[kind][name]
            self.answer(200, {})
        else:
            if self.body["metadata"]["resourceVersion"] != meta["resourceVersion"]:
                self.answer(409, {"message": "conflict"})
                return
            document["spec"] |= self.body["spec"]
            self.answer(200, self.api.put(kind, document))

    def _conditions(self, name: str) -> None:
        """Merge conditions into those of a node, by their types."""
        document = self.api.objects["nodes"].get(name)
        if document is None:
            self.answer(404, {"message": "not found"})
            return
        status = document["status"]
        merged = {one["type"]: one for one in (*status.get("conditions", ()), *self.body["status"]["conditions"])}
        status["conditions"] = list(merged.values())
        self.answer(200, self.api.put("nodes", document))


class Direct:
    """In place of an HTTP client: asks a server that was not entered, without connections, threads and parsing."""

    def __init__(self, api: FaultyKubernetes) -> None:
        self._api = api

    def close(self) -> None:
        pass

    @contextmanager
    def stream(
        self, method: str, path: str, *, params: dict[str, str] | None, content: bytes | None, **_: object
    ) -> Iterator[_Call]:
        yield _Call(self._api, method, path, params or {}, content or b"{}")


class _Call(Handler):
    """A call, and its answer as httpx would have it."""

    def __init__(self, api: FaultyKubernetes, method: str, path: str, query: dict[str, str], content: bytes) -> None:
        self.api, self.command, self.path, self.query, self.body = api, method, path, query, json.loads(content)
        self._dispatch()

    def answer(self, status: int, document: Document, **headers: str) -> None:
        self.status_code, self._content = status, json.dumps(document).encode()
        self.headers = {name.replace("_", "-").lower(): value for name, value in headers.items()}  # type: ignore[assignment]

    def iter_bytes(self) -> list[bytes]:
        return [self._content]


def _is_selected(labels: dict[str, str], selector: str) -> bool:
    for key, operator, values, absent, present in _REQUIREMENT.findall(selector):
        if present and (present in labels) is bool(absent):
            return False
        if key and (labels.get(key) in values.split(",")) is not (operator == "in"):
            return False
    return True
