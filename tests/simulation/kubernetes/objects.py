"""The objects of the API server, as a majority of etcd has them: versions, preconditions, finalizers, and watches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Document = dict[str, Any]
KINDS = ("nodes", "pods", "leases", "attachments", "claims", "volumes")


class ConflictError(Exception):
    """The object is not as the caller has read it."""


class Objects:
    """Documents by kind and key. ``changed`` is told of each kind of change, kind of object, and object."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._kinds: dict[str, dict[str, Document]] = {kind: {} for kind in KINDS}
        self._encoded: dict[str, dict[str, bytes]] = {kind: {} for kind in KINDS}
        self.version = 100
        self.versions = dict.fromkeys(KINDS, 0)  # when something of the kind has changed last
        self.changed: list[Callable[[str, str, Document], object]] = []

    def get(self, kind: str, key: str) -> Document | None:
        return self._kinds[kind].get(key)

    def all(self, kind: str) -> list[Document]:
        return list(self._kinds[kind].values())

    def encoded(self, kind: str, chosen: Callable[[Document], bool] | None = None) -> Iterator[bytes]:
        """Yield the objects of a kind as JSON."""
        encoded = self._encoded[kind]
        for key, document in self._kinds[kind].items():
            if chosen is None or chosen(document):
                yield encoded.get(key) or encoded.setdefault(key, msgspec.json.encode(document))

    def put(self, kind: str, document: Document) -> Document:
        """Add or change an object, as a new version."""
        meta = document["metadata"]
        key, new = key_of(meta), "resourceVersion" not in meta
        meta.setdefault("uid", f"uid-{kind}-{self.version}")
        self._next(kind, key)
        meta["resourceVersion"] = str(self.version)
        self._kinds[kind][key] = document
        self._tell("ADDED" if new else "MODIFIED", kind, document)
        return document

    def remove(self, kind: str, key: str) -> None:
        """Remove an object, whatever protects it."""
        if (document := self._kinds[kind].pop(key, None)) is not None:
            self._next(kind, key)
            self._tell("DELETED", kind, document)

    def delete(self, kind: str, key: str, preconditions: Mapping[str, str], *, at_once: bool = True) -> bool:
        """Delete as the API server does; whether it was there. With finalizers it is only marked as deleted."""
        document = self._kinds[kind].get(key)
        if document is None:
            return False
        meta = document["metadata"]
        if any(meta.get(name) != value for name, value in preconditions.items()):
            raise ConflictError
        if at_once and not meta.get("finalizers"):
            self.remove(kind, key)
        elif "deletionTimestamp" not in meta or (at_once and meta.get("deletionGracePeriodSeconds")):
            meta.setdefault("deletionTimestamp", f"2026-11-26T00:00:{self._now():09.3f}Z")
            meta["deletionGracePeriodSeconds"] = 0 if at_once else 30
            self.put(kind, document)
        return True

    def _next(self, kind: str, key: str) -> None:
        self.version += 1
        self.versions[kind] = self.version
        self._encoded[kind].pop(key, None)

    def _tell(self, what: str, kind: str, document: Document) -> None:
        for listener in self.changed:
            listener(what, kind, document)


def key_of(meta: Mapping[str, Any]) -> str:
    """Return the key of an object: its namespace and name."""
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def terminating(document: Document) -> bool:
    return "deletionTimestamp" in document["metadata"]


def ready(node: Document) -> str:
    """Return the status of the node's condition Ready."""
    return next((str(one["status"]) for one in node["status"]["conditions"] if one["type"] == "Ready"), "Unknown")


def has_taint(node: Document, key: str) -> bool:
    return any(one["key"] == key for one in node["spec"]["taints"])
