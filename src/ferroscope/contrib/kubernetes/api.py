"""The Kubernetes API over HTTP: bounded in time and size, with preconditions, decoded into structs of the caller.

lightkube reads the kubeconfig and makes the HTTP client (TLS, tokens that are renewed, ``exec`` plugins). Its own
resource models are not used: its ``delete`` has no preconditions, and its objects of 20,000 pods would take too much
memory. A call either returns, or raises ``KubernetesError``, which says which answer it was.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final, Generic, TypeVar

import msgspec

from ferroscope.remote.retry import retry_after
from ferroscope_client.core import json_safety

T = TypeVar("T")

MERGE: Final = "application/merge-patch+json"
# Lists with a key, such as conditions by type, keep the items that the patch does not have.
STRATEGIC_MERGE: Final = "application/strategic-merge-patch+json"

# A piece of 64 KiB becomes at most 64 MiB when it is decompressed once; other encodings have no limit.
_COMPRESSED: Final = {"Accept-Encoding": "gzip"}
_PLAIN: Final = {"Accept-Encoding": "identity"}
_AS_TABLE: Final = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"} | _PLAIN
_ITEMS_PER_PAGE: Final = 100  # a Node has up to 20 kB, and each page has to be there in time
_MAX_ANSWER_BYTES: Final = 256 << 20
_MAX_PAGES: Final = 10_000
_MAX_LINE_BYTES: Final = 8 << 20  # of a watch: an object is a row of a table
_MAX_LIST_ATTEMPTS: Final = 3
_WATCH_SECONDS: Final = 60
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class KubernetesError(Exception):
    """A call failed. ``status`` is the HTTP status, 0 if there was no complete answer."""

    def __init__(self, status: int, message: str, *, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    @property
    def is_version_expired(self) -> bool:
        """Whether the resource version is too old: list again."""
        return self.status == 410

    @property
    def conflict(self) -> bool:
        """Whether the object has changed since it was read."""
        return self.status == 409

    @property
    def transient(self) -> bool:
        """Whether the same call may succeed later without a change."""
        return self.status in (0, 429) or self.status >= 500


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, Generic[T]):
    metadata: _ListMeta
    items: list[T] | None = None


class _KubernetesStatus(msgspec.Struct):
    code: int = 0
    message: str = ""


class _KubernetesEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw = msgspec.Raw(b"{}")


class _RowMeta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _RowObject(msgspec.Struct, frozen=True):
    metadata: _RowMeta = _RowMeta()


class TableRow(msgspec.Struct, frozen=True):
    """An object as kubectl shows it: its cells, and its metadata."""

    cells: list[Any] = []
    object: _RowObject = _RowObject()


class ResourceTable(msgspec.Struct, frozen=True):
    """Source: meta.k8s.io/v1 Table, in the Kubernetes API reference."""

    metadata: _ListMeta = _ListMeta()
    rows: list[TableRow] | None = None


class _Version(msgspec.Struct, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class Right(msgspec.Struct, frozen=True):
    """A right that a controller needs, as in an RBAC rule."""

    verb: str
    group: str
    resource: str
    namespace: str = ""

    @property
    def rule(self) -> str:
        """The RBAC rule that grants it."""
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: ["{self.verb}"]}}'


class KubernetesClient:
    """``http`` is an httpx client with the server as base URL; ``timeout`` is for each call as a whole, in seconds."""

    def __init__(self, http: Any, *, timeout: float) -> None:
        self._http = http
        self._timeout = timeout
        self._skew = 0.0

    def close(self) -> None:
        self._http.close()

    def version(self) -> tuple[int, int]:
        """Return major and minor version; (0, 0) if the server does not say."""
        version = self._decode(_Version, self._call("GET", "/version"))
        numbers = [
            int(digits[0]) if (digits := re.search(r"\d{1,9}", text)) else 0 for text in (version.major, version.minor)
        ]
        if not any(numbers) and (parts := re.match(r"v?(\d{1,9})\.(\d{1,9})", version.git_version)):
            numbers = [int(parts[1]), int(parts[2])]
        return numbers[0], numbers[1]

    def may(self, right: Right) -> bool:
        """Whether we have this right."""
        group, _, subresource = right.resource.partition("/")
        attributes = {"verb": right.verb, "group": right.group, "resource": group, "subresource": subresource}
        if right.namespace:
            attributes["namespace"] = right.namespace
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {
                "resourceAttributes": {name: value for name, value in attributes.items() if value or name == "group"}
            },
        }
        answer = self._call("POST", _REVIEWS, body)
        return bool(self._decode(dict[str, Any], answer).get("status", {}).get("allowed"))

    def missing(self, rights: Iterable[Right]) -> list[Right]:
        """Return the rights that we lack among these."""
        return [right for right in rights if not self.may(right)]

    def skew(self) -> float:
        """Return how many seconds the API server's clock was ahead of ours at its last answer; 0 if it did not say."""
        return self._skew

    def time(self) -> float:
        """Return the time by the API server's clock, in seconds since the epoch."""
        return time.time() + self._skew

    def is_ready(self, server: str) -> bool:
        """Whether the API server at this URL says that it is ready."""
        try:
            self._call("GET", f"{server.rstrip('/')}/readyz")
        except KubernetesError:
            return False
        return True

    def _read_object(self, kind: type[T], path: str) -> T | None:
        """Return the object as a majority of etcd knows it; None if it does not exist."""
        try:
            decoded: T = self._decode(kind, self._call("GET", path))
        except KubernetesError as exc:
            if exc.status == 404:
                return None
            raise
        return decoded

    def _watch(self, path: str, version: str) -> Iterator[tuple[str, ResourceTable]]:
        """Yield the changes since ``version`` for about a minute, as the kind of change and a table of what changed.

        The columns are those that kubectl shows, so an object of 15 kB is a row of one or two. Without a version, all
        objects come first. A ``BOOKMARK`` only carries a newer version. ``KubernetesError``, ``is_version_expired`` if
        the version is too old.
        """
        parameters = {"watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        if version:
            parameters["resourceVersion"] = version
        seconds = _WATCH_SECONDS + self._timeout
        options = {"params": parameters, "headers": _AS_TABLE, "timeout": seconds}
        ends_at = time.monotonic() + seconds
        with _transport_errors(), self._http.stream("GET", path, **options) as response:
            if response.status_code >= 400:
                raise _error(response.status_code, self._body(response, ends_at), response.headers)
            for line in _lines(response, ends_at):
                if not line:
                    continue
                event = self._decode(_KubernetesEvent, line)
                if event.type == "ERROR":
                    status = self._decode(_KubernetesStatus, bytes(event.object))
                    raise KubernetesError(status.code or 500, status.message or "the watch failed")
                yield event.type, self._decode(ResourceTable, bytes(event.object))

    def _record(
        self, about: Mapping[str, str], reason: str, message: str, *, warning: bool, component: str, namespace: str
    ) -> None:
        """Add an Event about the object that the reference ``about`` names."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        body = {
            "metadata": {"generateName": f"{about['name']}.", "namespace": namespace},
            "involvedObject": dict(about),
            "reason": reason,
            "message": message[:1024],
            "type": "Warning" if warning else "Normal",
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._call("POST", f"/api/v1/namespaces/{namespace}/events", body)

    def _list(self, kind: type[T], path: str, **parameters: str) -> tuple[list[T], str]:
        """Return all items, page by page, and the version of the list; again if a page's version is gone."""
        for again in range(_MAX_LIST_ATTEMPTS, 0, -1):
            try:
                return self._pages(kind, path, parameters)
            except KubernetesError as exc:
                if not exc.is_version_expired or again == 1:
                    raise
        raise AssertionError  # the loop returns or raises

    def _pages(self, kind: type[T], path: str, parameters: Mapping[str, str]) -> tuple[list[T], str]:
        items: list[T] = []
        marker = ""
        for _ in range(_MAX_PAGES):
            page = {"limit": str(_ITEMS_PER_PAGE), **parameters}
            if marker:
                page = {**page, "continue": marker}
                page.pop("resourceVersion", None)
            answer = self._decode(_List[kind], self._call("GET", path, parameters=page))  # type: ignore[valid-type]
            items += answer.items or []
            marker = answer.metadata.continue_
            if not marker:
                return items, answer.metadata.resource_version
        raise KubernetesError(0, f"the API server's list has more than {_MAX_PAGES} pages")

    def _list_up_to(self, kind: type[T], path: str, limit: int, **parameters: str) -> list[T] | None:
        """Return all items; None if they are more than ``limit``."""
        answer = self._decode(
            _List[kind],  # type: ignore[valid-type]
            self._call("GET", path, parameters={**parameters, "limit": str(limit)}),
        )
        return None if answer.metadata.continue_ else answer.items or []

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
        headers = {"Accept": "application/json"} | _COMPRESSED | ({} if body is None else {"Content-Type": kind})
        with (
            _transport_errors(),
            self._http.stream(
                method, path, params=parameters, content=content, headers=headers, timeout=self._timeout
            ) as response,
        ):
            self._skew = _skew(response.headers.get("date", ""))
            answer = self._body(response, ends_at)
            if response.status_code >= 400:
                raise _error(response.status_code, answer, response.headers)
            return answer

    def _body(self, response: Any, ends_at: float) -> bytes:
        if (encoding := response.headers.get("content-encoding", "identity").lower()) not in ("gzip", "identity"):
            raise KubernetesError(0, f"the API server's answer has the unknown encoding {encoding[:20]!r}")
        parts, size = [], 0
        for part in response.iter_bytes():
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER_BYTES:
                raise KubernetesError(0, "the API server's answer is too large")
            if time.monotonic() > ends_at:
                raise KubernetesError(0, f"the API server has not answered within {self._timeout:g} s")
        return b"".join(parts)

    @staticmethod
    def _decode(kind: Any, body: bytes) -> Any:
        try:
            return json_safety.decode_own(body, kind)
        except json_safety.JsonError as exc:
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


def _lines(response: Any, ends_at: float) -> Iterator[bytes]:
    """Yield the lines of a watch until it ends, or its time is over."""
    pieces, size = [], 0  # the incomplete line
    for part in response.iter_raw():
        piece, *complete = part.split(b"\n")
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_LINE_BYTES:
            raise KubernetesError(0, f"a line of the watch is longer than {_MAX_LINE_BYTES} bytes")
        if complete:
            yield b"".join(pieces)
            yield from complete[:-1]
            pieces, size = [complete[-1]], len(complete[-1])
        if time.monotonic() > ends_at:
            return
    yield b"".join(pieces)


def _skew(date: str) -> float:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def _error(status: int, body: bytes, headers: Mapping[str, str]) -> KubernetesError:
    try:
        message = json_safety.decode(body, _KubernetesStatus).message
    except json_safety.JsonError:
        message = ""
    pause = min(retry_after(headers.get("retry-after"), headers.get("date")), 60.0)
    return KubernetesError(status, message[:500] or f"the API server answered {status}", retry_after=pause)
