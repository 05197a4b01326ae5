"""The API server over simulated HTTP: the routes that the controller uses, and the stand-in for its HTTP client."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tests.simulation.kubernetes.objects import ConflictError, Document, ready
from tests.simulation.threads import Flag

if TYPE_CHECKING:
    from tests.simulation.cluster import Host
    from tests.simulation.kubernetes.cluster import Cluster

OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
_COLLECTIONS: Final = {
    "/api/v1/nodes": "nodes",
    "/api/v1/pods": "pods",
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": "leases",
    "/apis/storage.k8s.io/v1/volumeattachments": "attachments",
    "/api/v1/persistentvolumeclaims": "claims",
    "/api/v1/persistentvolumes": "volumes",
}
_NAMESPACED: Final = re.compile(r"/api/v1/namespaces/([^/]+)/(pods|persistentvolumeclaims|events)(?:/([^/]+))?(/.+)?$")
_KINDS: Final = {"pods": "pods", "persistentvolumeclaims": "claims", "events": "events"}
_SELECTOR: Final = re.compile(r"(?:([^\s=!(),]+)(?: in \(([^()]*)\)|=([^,]*)))?")
Answer = tuple[int, bytes]


class ApiServer:
    """``events``: those that were recorded, and when; ``deletions``: how often each object was deleted.

    ``unreadable``: the status with which it answers a GET, by the kind and key of the object, or by "pods on NODE".
    """

    def __init__(self, cluster: Cluster, minor: int) -> None:
        self._cluster = cluster
        self._objects = cluster.objects
        self._minor = minor
        self.events: list[tuple[float, Document]] = []
        self.unreadable: dict[str, int] = {}
        self.deletions: dict[str, int] = {}

    def answer(self, method: str, path: str, query: Mapping[str, str], body: bytes | None) -> Answer:
        """Answer a call."""
        document = None if body is None else msgspec.json.decode(body)
        if path.endswith("/readyz"):
            return 200, b"{}"
        if path == "/version":
            return 200, msgspec.json.encode({"major": "1", "minor": str(self._minor)})
        if path.endswith("selfsubjectaccessreviews"):
            return 201, b'{"status": {"allowed": true}}'
        if path in _COLLECTIONS:
            return self._list(_COLLECTIONS[path], query)
        if found := _NAMESPACED.match(path):
            namespace, plural, name, _ = found.groups()
            if plural == "events" and document is not None:
                self.events.append((self._cluster.kernel.now, document))
                return 201, b"{}"
            if name is None:
                return self._list(_KINDS[plural], query, namespace)
            return self._one(method, _KINDS[plural], f"{namespace}/{name}", document)
        parent, _, name = path.removesuffix("/status").rpartition("/")
        if parent not in _COLLECTIONS:
            raise AssertionError(f"the simulated API server has no {path}")
        return self._one(method, _COLLECTIONS[parent], name, document)

    def _list(self, kind: str, query: Mapping[str, str], namespace: str = "") -> Answer:
        chosen: Callable[[Document], bool] | None = None
        if namespace or "labelSelector" in query:
            chosen = _by_label(namespace, query.get("labelSelector", ""))
        if selector := query.get("fieldSelector"):
            name, _, value = selector.partition("=")
            if name != "spec.nodeName":
                raise AssertionError(f"the simulated API server cannot select by {name}")
            if status := self.unreadable.get(f"{kind} on {value}"):
                return _status(status, f"{kind} on {value} cannot be read")
            chosen = lambda one: one["spec"].get("nodeName") == value  # noqa: E731
        items = b",".join(self._objects.encoded(kind, chosen))
        return 200, b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self._objects.version, items)

    def _one(self, method: str, kind: str, key: str, body: Any) -> Answer:
        document = self._objects.get(kind, key)
        if method == "GET" and (status := self.unreadable.get(f"{kind} {key}")):
            return _status(status, f"{kind} {key} cannot be read")
        if document is None:
            return _status(404, f"{kind} {key} not found")
        if method == "GET":
            return 200, msgspec.json.encode(document)
        if method == "PATCH":
            return self._patch(kind, document, body)
        if method == "DELETE":
            return self._delete(kind, key, document, body)
        raise AssertionError(f"the simulated API server cannot {method} {kind}")

    def _delete(self, kind: str, key: str, document: Document, body: Any) -> Answer:
        preconditions = body.get("preconditions", {})
        self.deletions[key] = self.deletions.get(key, 0) + 1
        try:
            meta = document["metadata"]
            if all(meta.get(name) == value for name, value in preconditions.items()):
                self._cluster.check.forced(kind, document)
            self._objects.delete(kind, key, preconditions)
        except ConflictError:
            return _status(409, f"{kind} {key} has changed")
        return 200, b"{}"

    def _patch(self, kind: str, document: Document, body: Any) -> Answer:
        if kind != "nodes":
            raise AssertionError(f"the simulated API server patches no {kind}")
        version = body.get("metadata", {}).get("resourceVersion")
        if version is not None and version != document["metadata"]["resourceVersion"]:
            return _status(409, f"node {document['metadata']['name']} has changed")
        taints = body.get("spec", {}).get("taints")
        if taints is not None:
            if any(one["key"] == OUT_OF_SERVICE for one in taints):
                self._cluster.check.forced("nodes", document)
            document["spec"]["taints"] = taints
        for new in body.get("status", {}).get("conditions", ()):  # a strategic merge, by type
            old = [one for one in document["status"]["conditions"] if one["type"] != new["type"]]
            document["status"]["conditions"] = [*old, new]
        self._objects.put("nodes", document)
        return 200, msgspec.json.encode(document)


def _by_label(namespace: str, selector: str) -> Callable[[Document], bool]:
    """Return what selects the objects of a namespace, "" of all, with a label that has one of some values."""
    found = _SELECTOR.fullmatch(selector)
    if found is None:
        raise AssertionError(f"the simulated API server cannot select by {selector!r}")
    key, values = found[1], (found[2] or found[3] or "").split(",")

    def chosen(one: Document) -> bool:
        meta = one["metadata"]
        labels = meta.get("labels") or {}
        return (not namespace or meta["namespace"] == namespace) and (not key or labels.get(key) in values)

    return chosen


def _status(code: int, message: str) -> Answer:
    return code, msgspec.json.encode({"code": code, "message": message})


class Response:
    """What ``httpx`` gives for a streamed call."""

    def __init__(self, status: int, body: bytes, lines: Iterator[str] | None = None) -> None:
        self.status_code = status
        self.headers: dict[str, str] = {}
        self._body = body
        self._lines = lines

    def iter_bytes(self) -> Iterator[bytes]:
        yield self._body

    def iter_raw(self) -> Iterator[bytes]:
        for line in self._lines or ():
            yield line.encode() + b"\n"


class HttpClient:
    """Stands in for the ``httpx`` client of one process."""

    def __init__(self, cluster: Cluster, host: Host) -> None:
        self._cluster = cluster
        self._kernel = cluster.kernel
        self._host = host
        self._rng = cluster.kernel.rng(f"API network {host.name}")

    def close(self) -> None: ...

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        timeout: float,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Response]:
        if params and params.get("watch"):
            yield Response(200, b"", self._watch(params.get("resourceVersion", "0"), timeout))
            return
        found = self._call(method, path, params or {}, content, timeout)
        yield Response(*found)

    def _call(self, method: str, path: str, params: Mapping[str, str], content: bytes | None, timeout: float) -> Answer:
        """Send the call; it may be carried out although no answer comes."""
        cluster, kernel, rng = self._cluster, self._kernel, self._rng
        task = kernel.me()
        ticket, patience = task.ticket, timeout / task.owner.rate
        lost = rng.random() < cluster.api_loss

        def arrive() -> None:
            if not cluster.reachable(self._host):
                return  # packets are dropped
            if not cluster.api_up:
                kernel.at(0.0, kernel.resume, task, ticket, (0, b""))
                return
            try:
                found = cluster.api.answer(method, path, params, content)
            except AssertionError as exc:
                kernel.resume(task, ticket, exc)
                return
            if method != "GET":
                kernel.say(f"{method} {path}: {found[0]}", str(task))
            if not lost:
                kernel.at(0.0005 + 0.002 * rng.random(), kernel.resume, task, ticket, found)

        low, high = cluster.api_delay
        delay = low + (high - low) * rng.random() if high else 0.0
        kernel.at(delay + (0.0005 + 0.002 * rng.random()) * cluster.api_slowness, arrive)
        kernel.at(patience, kernel.resume, task, ticket, None)
        answer = kernel.park()
        if isinstance(answer, AssertionError):
            raise answer
        if answer is None:
            raise TimeoutError("timed out")
        if not answer[0]:
            raise ConnectionRefusedError("connection refused")
        status, body = answer
        return status, body

    def _watch(self, version: str, timeout: float) -> Iterator[str]:
        """Yield the changes of nodes until the time is over or the connection breaks."""
        kernel, cluster = self._kernel, self._cluster
        if not cluster.api_up or not cluster.reachable(self._host):
            raise ConnectionError("cannot watch")
        watch = Watch(kernel, self._host)
        cluster.watches.append(watch)
        until = kernel.now + timeout / kernel.me().owner.rate
        try:
            if int(version) < cluster.objects.versions["nodes"]:
                for node in cluster.objects.all("nodes"):
                    watch.see("MODIFIED", node)
            while kernel.now < until:
                if not watch.lines:
                    watch.flag.wait(until - kernel.now)
                    watch.flag.clear()
                if watch.broken:
                    raise ConnectionResetError("the watch broke")
                while watch.lines:
                    yield watch.lines.popleft()
        finally:
            cluster.watches.remove(watch)


class Watch:
    """One watch of the nodes, as it arrives at a process."""

    def __init__(self, kernel: Any, host: Host) -> None:
        self.host = host
        self.lines: deque[str] = deque()
        self.flag = Flag(kernel)
        self.broken = False

    def see(self, what: str, node: Document) -> None:
        status = "Ready" if ready(node) == "True" else "NotReady"
        cells = [node["metadata"]["name"], status + ",SchedulingDisabled" * bool(node["spec"].get("unschedulable"))]
        table = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "rows": [{"cells": cells, "object": {"metadata": node["metadata"]}}],
        }
        self.lines.append(msgspec.json.encode({"type": what, "object": table}).decode())
        self.flag.set()

    def sever(self) -> None:
        self.broken = True
        self.flag.set()
