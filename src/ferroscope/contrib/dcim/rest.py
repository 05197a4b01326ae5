"""A client of a DCIM's REST API: pages, retries, bounded in time and size; the token is never in a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3

from ferroscope.contracts.store import StopFlag
from ferroscope.contrib.dcim.dialects import DIALECTS, DcimDialect
from ferroscope.remote.bounded_http import limit_connections
from ferroscope.remote.deadline import Deadline, DeadlineError
from ferroscope.remote.retry import backoff
from ferroscope_client.core import json_safety, values

ITEMS_PER_PAGE: Final = 200
_MAX_ANSWER_BYTES: Final = 64 * 2**20
_MAX_PAGES: Final = 5_000  # a million objects
_REFUSED: Final = (400, 404, 409)
# Errors after which the call certainly was not carried out.
_NOT_YET: Final = (429, 503)
_MAX_PAUSE_SECONDS: Final = 60.0


class DcimError(Exception):
    """A call failed; ``status`` is that of the response, 0 if there was none; ``pause``: seconds that it asks for."""

    def __init__(self, message: str, status: int = 0, pause: float = 0.0) -> None:
        self.status = status
        self.pause = min(pause, _MAX_PAUSE_SECONDS)
        super().__init__(message)

    @property
    def is_refusal(self) -> bool:
        """Whether this object is refused, and others may not be."""
        return self.status in _REFUSED


class _RestPage(msgspec.Struct):
    results: list[dict[str, Any]]
    next: str | None = None


# In the order of what was sent: each object, or why it was refused.
Answers = list[dict[str, Any] | DcimError]


class RestClient:
    """``seconds`` limit each call as a whole. Redirects are refused: the token is for this server only.

    A call is repeated if that may help, up to ``tries`` times in all. A call that creates something is not repeated if
    it may have been carried out: it could create it twice.
    """

    def __init__(
        self, url: str, token: str, dialect: DcimDialect, stop: StopFlag, *, seconds: float = 30.0, tries: int = 5
    ) -> None:
        self._url, self._token, self._dialect = url.rstrip("/"), token, dialect
        self._headers = {"Authorization": dialect.authorization(token), "Accept": "application/json"}
        self._seconds = seconds
        self._pauses = backoff(1.0, tries - 1)
        self._stop = stop
        self._pool = urllib3.PoolManager(retries=False)
        limit_connections(self._pool)

    def check(self) -> None:
        """Raise ``DcimError`` if the server is of another kind, too old, or rejects the token."""
        expected = self._dialect
        try:
            status = self._try("GET", "/api/status/", None)
        except DcimError as exc:
            if exc.status != 404:
                raise
            raise DcimError(f"no {expected.name} at {self._url}: it has no /api/status/ (HTTP 404)", 404) from None
        for dialect in DIALECTS:
            version = status.get(dialect.version_key) if isinstance(status, dict) else None
            if isinstance(version, str) and dialect is not expected:
                raise DcimError(f"the server at {self._url} is {dialect.name} {version[:20]}, not {expected.name}")
            if isinstance(version, str):
                numbers = tuple(int(part) for part in re.findall(r"\d{1,9}", version[:20])[:2])
                if numbers < expected.oldest:
                    oldest = ".".join(map(str, expected.oldest))
                    raise DcimError(f"{expected.name} {version[:20]} is too old: expected {oldest} or newer")
                return
        raise DcimError(f"no {expected.name} at {self._url}: /api/status/ does not have its version")

    def list(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield all objects of a list, page by page."""
        target = f"/api/{path}/?" + urlencode({**query, "limit": ITEMS_PER_PAGE}, doseq=True)
        for _ in range(_MAX_PAGES):
            try:
                page = msgspec.convert(self._call("GET", target), _RestPage)
                following = urlsplit(page.next or "")
            except ValueError as exc:
                raise DcimError(f"invalid response to GET {target[:100]}: {exc}") from None
            yield from page.results
            if not page.next:
                return
            # A proxy may have changed scheme and host of the URL; the token goes to our URL only.
            target = f"/api/{following.path.partition('/api/')[2]}?{following.query}"
        raise DcimError(f"the list {path} has more than {_MAX_PAGES} pages")

    def create(self, path: str, bodies: Sequence[dict[str, Any]]) -> Answers:
        """Create objects, with one call if all are accepted; return each, or why it was refused."""
        return self._send_together("POST", path, bodies)

    def update(self, path: str, bodies: Sequence[dict[str, Any]]) -> Answers:
        """Change objects in the same way; each body has the ``id`` of its object."""
        return self._send_together("PATCH", path, bodies)

    def _send_together(self, method: str, path: str, bodies: Sequence[dict[str, Any]]) -> Answers:
        answers: Answers = []
        try:
            if bodies:
                answers = self._call(method, f"/api/{path}/", bodies)
        except DcimError as exc:
            if not exc.is_refusal:
                raise
            # The server refused all of them, because it refused at least one.
            answers = [exc] if len(bodies) == 1 else [self._send_together(method, path, [body])[0] for body in bodies]
        return answers

    def _call(self, method: str, target: str, body: Any = None) -> Any:
        for pause in self._pauses:
            try:
                return self._try(method, target, body)
            except DcimError as exc:
                again = exc.status in _NOT_YET or (method != "POST" and (exc.status == 0 or exc.status >= 500))
                if not again or self._stop.wait(max(pause, exc.pause)):
                    raise
        return self._try(method, target, body)

    def _try(self, method: str, target: str, body: Any) -> Any:
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        content = None if body is None else msgspec.json.encode(body)
        if method == "POST":
            self._pool.clear()  # on a new connection: a used one may be closed by the server while this is sent
        with Deadline(self._seconds) as deadline:
            try:
                answer = self._pool.request(
                    method, self._url + target, body=content, headers=headers, timeout=self._seconds,
                    redirect=False, preload_content=False,
                )  # fmt: skip
                received = answer.read(_MAX_ANSWER_BYTES + 1)
                deadline.seconds_left()
                if len(received) > _MAX_ANSWER_BYTES:
                    answer.close()
                    larger = f"the response to {method} {target[:100]} is larger than {_MAX_ANSWER_BYTES // 2**20} MiB"
                    raise DcimError(larger, answer.status)
                answer.release_conn()
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError, ValueError) as exc:
                why = f"no response within {self._seconds:g} s" if deadline.has_expired else type(exc).__name__
                raise DcimError(f"cannot call {self._url}: {why}") from exc
        if answer.status >= 300:
            answered = values.one_line(received[:2000].decode(errors="replace").replace(self._token, values.MASK), 300)
            after = answer.headers.get("Retry-After", "")
            pause = float(after) if after.isdecimal() else 0.0
            raise DcimError(f"{method} {target[:100]}: HTTP {answer.status}: {answered}", answer.status, pause)
        try:
            return json_safety.decode(received, max_containers=json_safety.MAX_DERIVED) if received else None
        except json_safety.JsonError:
            raise DcimError(f"invalid response to {method} {target[:100]}: not JSON", answer.status) from None
