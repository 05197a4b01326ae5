"""The calls to the Kubernetes API: bounded in time and size, with preconditions, decoded into ``cluster``'s structs.

lightkube reads the kubeconfig and makes the HTTP client (TLS, tokens that are renewed, ``exec`` plugins). Its own
resource models are not used: its ``delete`` has no preconditions, and its objects of 20,000 pods would not fit into the
memory that they deserve. A call either returns, or raises ``KubernetesError``, which says which answer it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from ferroscope.failover.cluster import (
    OUT_OF_SERVICE,
    Attachment,
    KubeletLease,
    KubeNode,
    Pod,
    Taint,
)

T = TypeVar("T")

_PAGE: Final = 500
_MOST_BYTES: Final = 256 << 20
_RELISTS: Final = 3
_WATCH_SECONDS: Final = 60
_MERGE: Final = "application/merge-patch+json"
_SERVED_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"


class KubernetesError(Exception):
    """A call failed. ``status`` is the HTTP status, 0 if there was no complete answer."""

    def __init__(self, status: int, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def gone(self) -> bool:
        """Whether the resource version is too old: list again."""
        return self.status == 410

    @property
    def conflict(self) -> bool:
        """Whether the object has changed since it was read."""
        return self.status == 409


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class Right(msgspec.Struct, frozen=True):
    """A right that the controller needs, as in an RBAC rule."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    @property
    def rule(self) -> str:
        """The RBAC rule that grants it."""
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: ["{self.verb}"]}}'


RIGHTS: Final = (
    Right("list", "", "nodes"),
    Right("get", "", "nodes"),
    Right("watch", "", "nodes"),
    Right("list", "", "pods"),
    Right("get", "coordination.k8s.io", "leases", "kube-node-lease"),
    Right("list", "coordination.k8s.io", "leases", "kube-node-lease"),
    Right("list", "storage.k8s.io", "volumeattachments"),
)
# Those of a controller that does not only look.
FORCING_RIGHTS: Final = (
    Right("patch", "", "nodes"),
    Right("delete", "", "pods"),
    Right("delete", "storage.k8s.io", "volumeattachments"),
    Right("create", "", "events", "default"),
)


class Kubernetes:
    """``http`` is an httpx client with the server as base URL; ``timeout`` is for each call as a whole, in seconds."""

    def __init__(self, http: Any, *, timeout: float) -> None:
        self._http = http
        self._timeout = timeout
        self._old_eviction = False

    def close(self) -> None:
        self._http.close()

    def version(self) -> tuple[int, int]:
        """Return major and minor version; (0, 0) if the server does not say."""
        found = self._decoded(_Version, self._call("GET", "/version"))
        numbers = [int(one[0]) if (one := re.findall(r"\d+", text)) else 0 for text in (found.major, found.minor)]
        if not any(numbers) and (parts := re.match(r"v?(\d+)\.(\d+)", found.git_version)):
            numbers = [int(parts[1]), int(parts[2])]
        self._old_eviction = (1, 0) < (numbers[0], numbers[1]) < (1, 22)
        return numbers[0], numbers[1]

    def nodes(self) -> tuple[list[KubeNode], str]:
        """Return all nodes as a majority of etcd knows them, and the version of this list."""
        return self._list(KubeNode, "/api/v1/nodes")

    def node(self, name: str) -> KubeNode | None:
        """Return the node as a majority of etcd knows it; None if it does not exist."""
        try:
            found: KubeNode = self._decoded(KubeNode, self._call("GET", f"/api/v1/nodes/{quote(name)}"))
        except KubernetesError as exc:
            if exc.status == 404:
                return None
            raise
        return found

    def watch_nodes(self, version: str) -> Iterator[tuple[str, KubeNode]]:
        """Yield the changes since ``version`` for about a minute, as the kind of change and the node.

        A ``BOOKMARK`` only carries a newer version. ``KubernetesError``, ``gone`` if the version is too old.
        """
        parameters = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_SECONDS),
        }
        with (
            _transport_errors(),
            self._http.stream(
                "GET", "/api/v1/nodes", params=parameters, timeout=_WATCH_SECONDS + self._timeout
            ) as response,
        ):
            if response.status_code >= 400:
                raise _error(response.status_code, response.read(), response.headers)
            for line in response.iter_lines():
                if not line:
                    continue
                event = self._decoded(_Event, line.encode())
                if event.type == "ERROR":
                    status = self._decoded(_Status, bytes(event.object))
                    raise KubernetesError(status.code or 500, status.message or "the watch failed")
                yield event.type, self._decoded(KubeNode, bytes(event.object))

    def renewals(self) -> dict[str, str]:
        """Return what identifies the last renewal of each kubelet's lease, by node.

        From the server's cache, so it may be old, but that looks like silence: a hint, and never a sign of life.
        """
        leases, _ = self._list(KubeletLease, _SERVED_LEASES, resourceVersion="0")
        return {one.metadata.name: one.renewal for one in leases}

    def renewal(self, node: str) -> str:
        """Return the same of one node as a majority of etcd knows it; "" if it has no lease."""
        try:
            found: KubeletLease = self._decoded(KubeletLease, self._call("GET", f"{_SERVED_LEASES}/{quote(node)}"))
        except KubernetesError as exc:
            if exc.status == 404:
                return ""
            raise
        return found.renewal

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods that are bound to the node."""
        return self._list(Pod, "/api/v1/pods", fieldSelector=f"spec.nodeName={node}")[0]

    def attachments_of(self, node: str) -> list[Attachment]:
        """Return the VolumeAttachments of the node."""
        found, _ = self._list(Attachment, _ATTACHMENTS)
        return [one for one in found if one.spec.node_name == node]

    def delete_pod(self, pod: Pod) -> None:
        """Delete it without grace if it is as it was read; ``KubernetesError``, ``conflict`` if it is not."""
        meta = pod.metadata
        self._delete(
            f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}", meta.uid, meta.resource_version
        )

    def delete_attachment(self, attachment: Attachment) -> None:
        """Delete it if it is as it was read; as ``delete_pod``."""
        meta = attachment.metadata
        self._delete(f"{_ATTACHMENTS}/{quote(meta.name)}", meta.uid, meta.resource_version)

    def may_evict(self, pod: Pod) -> bool:
        """Whether the disruption budgets allow to evict the pod now; it is not evicted."""
        meta = pod.metadata
        body = {
            "apiVersion": "policy/v1beta1" if self._old_eviction else "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta.name, "namespace": meta.namespace},
            "deleteOptions": {"dryRun": ["All"]},
        }
        try:
            self._call("POST", f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}/eviction", body)
        except KubernetesError as exc:
            if exc.status == 429:
                return False
            raise
        return True

    def set_out_of_service(self, node: KubeNode, *, present: bool) -> None:
        """Set or remove the taint if the node is as it was read; as ``delete_pod``. Other taints stay."""
        taints = [one for one in node.taints if one.key != OUT_OF_SERVICE]
        if present:
            taints.append(Taint(OUT_OF_SERVICE, "nodeshutdown", "NoExecute"))
        body = {"metadata": {"resourceVersion": node.metadata.resource_version}, "spec": {"taints": taints}}
        self._call("PATCH", f"/api/v1/nodes/{quote(node.name)}", body, kind=_MERGE)

    def record_event(self, node: KubeNode, reason: str, message: str, *, warning: bool) -> None:
        """Add an Event about the node."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {
            "metadata": {"generateName": f"{node.name}.", "namespace": "default"},
            # kubectl describe looks for events of nodes by name, as the kubelet records them.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.name},
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": "ferroscope-failover"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._call("POST", "/api/v1/namespaces/default/events", body)

    def may(self, right: Right) -> bool:
        """Whether we have this right."""
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}
        if right.namespace:
            attributes["namespace"] = right.namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = self._call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        return bool(self._decoded(dict[str, Any], answer).get("status", {}).get("allowed"))

    def is_ready(self, server: str) -> bool:
        """Whether the API server at this URL says that it is ready."""
        try:
            self._call("GET", f"{server.rstrip('/')}/readyz")
        except KubernetesError:
            return False
        return True

    def _list(self, kind: type[T], path: str, **parameters: str) -> tuple[list[T], str]:
        """Return all items, page by page; from the start again if a page's version is gone."""
        for again in range(_RELISTS, 0, -1):
            try:
                return self._pages(kind, path, parameters)
            except KubernetesError as exc:
                if not exc.gone or again == 1:
                    raise
        raise AssertionError  # the loop returns or raises

    def _pages(self, kind: type[T], path: str, parameters: Mapping[str, str]) -> tuple[list[T], str]:
        found: list[T] = []
        marker = ""
        while True:
            page = {**parameters, "limit": str(_PAGE)}
            if marker:
                page = {**page, "continue": marker}
                page.pop("resourceVersion", None)
            answer = self._decoded(_List[kind], self._call("GET", path, parameters=page))  # type: ignore[valid-type]
            found += answer.items or []
            marker = answer.metadata.continue_
            if not marker:
                return found, answer.metadata.resource_version

    def _delete(self, path: str, uid: str, version: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "gracePeriodSeconds": 0,
            "preconditions": {"uid": uid, "resourceVersion": version},
        }
        try:
            self._call("DELETE", path, body)
        except KubernetesError as exc:
            if exc.status != 404:
                raise

    def _call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        parameters: Mapping[str, str] | None = None,
        kind: str = "application/json",
    ) -> bytes:
        ends_at = time.monotonic() + self._timeout
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Accept": "application/json"} | ({} if body is None else {"Content-Type": kind})
        with (
            _transport_errors(),
            self._http.stream(
                method, path, params=parameters, content=content, headers=headers, timeout=self._timeout
            ) as response,
        ):
            parts, size = [], 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > _MOST_BYTES:
                    raise KubernetesError(0, "the API server's answer is too large")
                if time.monotonic() > ends_at:
                    raise KubernetesError(0, f"the API server has not answered within {self._timeout:g} s")
            if response.status_code >= 400:
                raise _error(response.status_code, b"".join(parts), response.headers)
            return b"".join(parts)

    @staticmethod
    def _decoded(kind: Any, body: bytes) -> Any:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as exc:
            raise KubernetesError(0, f"the API server's answer is not what it should be: {exc}") from None


class _transport_errors:  # noqa: N801  # used like a function
    """Turn the errors of the HTTP client into ``KubernetesError``."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: object) -> None:
        if exc is None or isinstance(exc, KubernetesError) or not isinstance(exc, Exception):
            return
        module = type(exc).__module__
        if isinstance(exc, OSError) or module.startswith(("http", "ssl", "h11")):
            text = str(exc) or type(exc).__name__
            raise KubernetesError(0, f"cannot reach the API server: {text[:200]}") from None


def _error(status: int, body: bytes, headers: Mapping[str, str]) -> KubernetesError:
    try:
        message = msgspec.json.decode(body, type=_Status).message
    except (msgspec.DecodeError, UnicodeDecodeError):
        message = ""
    try:
        retry_after = min(float(headers.get("retry-after", "0")), 60.0)
    except ValueError:
        retry_after = 0.0
    return KubernetesError(status, message[:500] or f"the API server answered {status}", retry_after=retry_after)
