"""A small Kubernetes API server with Machines, Secrets and HardwareData: versions, watches, status, finalizers.

It keeps what the real one promises and the controller relies on: 409 for a stale version, a status that only its own
subresource changes, a deletion that waits for finalizers, and a generation that counts changes of ``spec``.
"""

from __future__ import annotations

import base64
import copy
import json
import threading
from typing import Any

from tests.support.faulty_kubernetes import Document, FaultyKubernetes, Handler

GROUP = "/apis/ferroscope.io/v1alpha1"
METAL3 = "/apis/metal3.io/v1alpha1"
_KINDS = ("machines", "secrets", "hardwaredata")


class FaultyMachines(FaultyKubernetes):
    """``writes`` are the calls that changed something, as method, kind, name and subresource."""

    def __init__(self, version: str = "20") -> None:
        super().__init__(version)
        self.handler = _MachineHandler
        self.objects |= {kind: {} for kind in _KINDS}
        self.history: list[tuple[int, str, str, Document]] = []
        self.changed = threading.Condition()
        self.oldest = 0
        self.served = True
        self.writes: list[tuple[str, str, str, str]] = []
        self._uids = 0

    def apply(self, name: str, spec: Document, *, namespace: str = "lab", **metadata: Any) -> Document:
        """Create or change a Machine, as ``kubectl apply`` does."""
        with self.changed:
            old = self.objects["machines"].get(f"{namespace}/{name}")
            if old is None:
                self._uids += 1
                about = {"name": name, "namespace": namespace, "uid": f"0000-{self._uids}", "generation": 1,
                         "creationTimestamp": f"2026-11-23T10:00:{self._uids % 60:02}Z", **metadata}  # fmt: skip
                return self.save("machines", {"metadata": about, "spec": copy.deepcopy(spec)}, "ADDED")
            new = copy.deepcopy(old)
            new["metadata"] |= metadata
            new["metadata"]["generation"] += new["spec"] != spec
            new["spec"] = copy.deepcopy(spec)
            return self.save("machines", new, "MODIFIED")

    def annotate(self, name: str, key: str, value: str, namespace: str = "lab") -> None:
        with self.changed:
            new = copy.deepcopy(self.objects["machines"][f"{namespace}/{name}"])
            new["metadata"].setdefault("annotations", {})[key] = value
            self.save("machines", new, "MODIFIED")

    def secret(self, name: str, namespace: str = "lab", **data: str) -> None:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        with self.changed:
            self.save("secrets", {"metadata": {"name": name, "namespace": namespace}, "data": encoded}, "ADDED")

    def delete(self, name: str, namespace: str = "lab") -> None:
        """Delete a Machine; it stays as long as it has finalizers."""
        with self.changed:
            new = copy.deepcopy(self.objects["machines"][f"{namespace}/{name}"])
            new["metadata"]["deletionTimestamp"] = "2026-11-23T11:00:00Z"
            self.save("machines", new, "MODIFIED")

    def machine(self, name: str, namespace: str = "lab") -> Document | None:
        return self.objects["machines"].get(f"{namespace}/{name}")

    def condition(self, name: str, kind: str, namespace: str = "lab") -> tuple[str, str]:
        """Return status and reason of a condition."""
        found = (self.machine(name, namespace) or {}).get("status", {}).get("conditions", [])
        return next(((one["status"], one["reason"]) for one in found if one["type"] == kind), ("", ""))

    def save(self, kind: str, document: Document, what: str) -> Document:
        meta = document["metadata"]
        key = f"{meta['namespace']}/{meta['name']}"
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            what = "DELETED"
            self.objects[kind].pop(key, None)
        else:
            self.objects[kind][key] = document
        self.history.append((self._version, kind, what, copy.deepcopy(document)))
        self.changed.notify_all()
        return document


class _MachineHandler(Handler):
    api: FaultyMachines

    def _route(self, path: str) -> None:
        parts = path.strip("/").split("/")
        if path in (GROUP, METAL3):
            names = ["machines", "machines/status"] if path == GROUP else ["hardwaredata"]
            known = self.api.served
            self.answer(200 if known else 404, {"resources": [{"name": name} for name in names]} if known else {})
        elif (at := next((i for i, part in enumerate(parts) if part in _KINDS), None)) is not None:
            namespace = parts[at - 1] if parts[at - 2] == "namespaces" else ""
            name, sub = ([*parts[at + 1 :], "", ""])[:2]
            with self.api.changed:
                if not name and self.command == "GET" and "watch" in self.query:
                    pass
                else:
                    self._object(parts[at], namespace, name, sub)
                    return
            self._watched(parts[at], namespace)
        else:
            super()._route(path)

    def _object(self, kind: str, namespace: str, name: str, sub: str) -> None:
        api, key = self.api, f"{namespace}/{name}"
        if not name and self.command == "GET":
            found = [one for one in api.objects[kind].values() if namespace in ("", one["metadata"]["namespace"])]
            self.answer(200, {"metadata": {"resourceVersion": str(api._version)}, "items": found})
            return
        if self.command != "GET":
            api.writes.append((self.command, kind, name or self.body["metadata"]["name"], sub))
        if self.command == "POST":
            meta = self.body["metadata"] | {"namespace": namespace}
            if f"{namespace}/{meta['name']}" in api.objects[kind]:
                self.answer(409, {"message": "already exists"})
                return
            api._uids += 1
            more = {"uid": f"0000-{api._uids}", "generation": 1, "creationTimestamp": "2026-11-23T10:30:00Z"}
            self.answer(201, api.save(kind, self.body | {"metadata": more | meta}, "ADDED"))
            return
        document = api.objects[kind].get(key)
        if document is None:
            self.answer(404, {"message": "not found"})
        elif self.command == "GET":
            self.answer(200, document)
        elif self.command == "DELETE":
            if any(document["metadata"][one] != value for one, value in self.body["preconditions"].items()):
                self.answer(409, {"message": "precondition failed"})
                return
            new = copy.deepcopy(document)
            new["metadata"]["deletionTimestamp"] = "2026-11-23T11:00:00Z"
            self.answer(200, api.save(kind, new, "MODIFIED"))
        else:
            self._patched(kind, document, sub)

    def _patched(self, kind: str, document: Document, sub: str) -> None:
        assert self.headers["Content-Type"] == "application/json-patch+json"
        new = copy.deepcopy(document)
        assert '""' not in json.dumps(self.body), "Kubernetes 1.20 turns an empty text in a JSON patch into null"
        for operation in self.body:
            *parents, last = (one.replace("~1", "/") for one in operation["path"].strip("/").split("/"))
            target = new
            for one in parents:
                target = target[one]
            if operation["op"] == "remove":
                del target[last]
            else:
                target[last] = operation["value"]
        if new["metadata"]["resourceVersion"] != document["metadata"]["resourceVersion"]:
            self.answer(409, {"message": "the object has been modified"})
            return
        # Each of the two endpoints changes its part only.
        kept = {**document, "status": new.get("status", {})} if sub else {**new, "status": document.get("status", {})}
        self.answer(200, self.api.save(kind, copy.deepcopy(kept), "MODIFIED"))

    def _watched(self, kind: str, namespace: str) -> None:
        api, since = self.api, int(self.query["resourceVersion"])
        if since < api.oldest:
            self.answer(200, {"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}})
            return
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        while not api.released.is_set():
            with api.changed:
                news = [one for one in api.history if one[0] > since and one[1] == kind]
                if not news:
                    api.changed.wait(0.05)
            for version, _, what, document in news:
                since = version
                if namespace in ("", document["metadata"]["namespace"]):
                    line = json.dumps({"type": what, "object": document}) + "\n"
                    try:
                        self.wfile.write(line.encode())
                        self.wfile.flush()
                    except OSError:
                        return
