"""A client of Nautobot's REST API: pages, bounded in time and size; the token is never in a message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
import urllib3

from ferroscope.core import values
from ferroscope.remote.bounded_http import bound
from ferroscope.remote.deadline import Deadline, DeadlineError

PAGE: Final = 200
_LARGEST: Final = 64 * 2**20


class DcimError(Exception):
    """A call failed; ``status`` is that of the response, 0 if there was none."""

    def __init__(self, message: str, status: int = 0) -> None:
        self.status = status
        super().__init__(message)


class RestClient:
    """``seconds`` limit each call as a whole. Redirects are refused: the token is for this server only."""

    def __init__(self, url: str, token: str, *, seconds: float = 30.0) -> None:
        self._url, self._token = url.rstrip("/"), token
        self._headers = {"Authorization": f"Token {token}", "Accept": "application/json"}
        self._seconds = seconds
        self._pool = urllib3.PoolManager(retries=False)
        bound(self._pool)

    def list(self, path: str, **query: Any) -> Iterator[dict[str, Any]]:
        """Yield all objects of a list, page by page."""
        target: str | None = f"/api/{path}/?" + urlencode({**query, "limit": PAGE}, doseq=True)
        while target:
            page = self._call("GET", target)
            yield from page["results"]
            following = urlsplit(page["next"] or "")
            # A proxy may have changed scheme and host of the URL; the token goes to our URL only.
            target = f"{following.path[following.path.find('/api/') :]}?{following.query}" if page["next"] else None

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        created: dict[str, Any] = self._call("POST", f"/api/{path}/", body)
        return created

    def update(self, path: str, ident: Any, body: dict[str, Any]) -> None:
        self._call("PATCH", f"/api/{path}/{ident}/", body)

    def _call(self, method: str, target: str, body: Any = None) -> Any:
        headers = self._headers | ({} if body is None else {"Content-Type": "application/json"})
        content = None if body is None else msgspec.json.encode(body)
        with Deadline(self._seconds) as deadline:
            try:
                answer = self._pool.request(
                    method, self._url + target, body=content, headers=headers, timeout=self._seconds,
                    redirect=False, preload_content=False,
                )  # fmt: skip
                received = answer.read(_LARGEST + 1)
                deadline.left()
                if len(received) > _LARGEST:
                    answer.close()
                    raise DcimError(f"the response to {method} {target[:100]} is larger than {_LARGEST // 2**20} MiB")
                answer.release_conn()
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError, ValueError) as exc:
                why = f"no response within {self._seconds:g} s" if deadline.expired else type(exc).__name__
                raise DcimError(f"cannot call {self._url}: {why}") from exc
        if answer.status >= 300:
            said = values.one_line(received[:2000].decode(errors="replace").replace(self._token, values.MASK), 300)
            raise DcimError(f"{method} {target[:100]}: HTTP {answer.status}: {said}", answer.status)
        try:
            return msgspec.json.decode(received) if received else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise DcimError(f"invalid response to {method} {target[:100]}: not JSON", answer.status) from None
