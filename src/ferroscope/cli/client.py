"""The command line's client of the Bare Metal API: connection pool, pagination, readable errors.

HTTP libraries are imported with the first request, so that ``--help`` is fast. Only safe requests are retried: after a
503, and reads after a broken connection.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from ferroscope.cli.exits import Exit, Failure

DEFAULT_URL: Final = "http://127.0.0.1:6385"

_VERSION_HEADER: Final = "X-OpenStack-Ironic-API-Version"
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 60.0
_LONGEST_PAUSE: Final = 5.0
_CODES: Final = {400: Exit.USAGE, 404: Exit.NOT_FOUND, 409: Exit.CONFLICT, 502: Exit.UNREACHABLE, 503: Exit.UNREACHABLE}

# API calls in error messages, and the commands that do the same.
_AS_COMMANDS: Final = (
    (re.compile(r"POST /v1/nodes/([^/\s]+)/approve"), r"ferroscope node approve \1"),
    (re.compile(r'PUT /v1/nodes/([^/\s]+)/states/provision with \{"target": "(\w+)"\}'), r"ferroscope node \2 \1"),
    (re.compile(r"GET /v1/drivers/(\S+)/properties"), r"'ferroscope driver properties'"),
    (re.compile(r"GET /v1/drivers"), "'ferroscope driver list'"),
)

Json = Any


class ApiError(Failure):
    """The service refused the call, with HTTP ``status``."""

    def __init__(self, status: int, message: str, *, advice: str = "") -> None:
        super().__init__(message, exit_code=_CODES.get(status, Exit.FAILURE), advice=advice)
        self.status = status


class UnreachableError(Failure):
    """The service did not respond."""

    def __init__(self, url: str, why: str) -> None:
        super().__init__(
            f"cannot connect to the Bare Metal API at {url}: {why}",
            exit_code=Exit.UNREACHABLE,
            advice="start it with 'ferroscope all', or set --url or FERROSCOPE_URL",
        )


class Api:
    """``patience``: seconds during which a 503 is retried; ``seconds``: timeout of one request.

    Not thread-safe.
    """

    def __init__(self, url: str = DEFAULT_URL, *, patience: float = 15.0, seconds: float = _ANSWER_SECONDS) -> None:
        self.url = _checked(url)
        self._patience = patience
        self._seconds = seconds
        self._pool: Any = None

    def get(self, path: str, **query: Any) -> Json:
        """Return the decoded response to GET; parameters that are None are omitted."""
        return self.call("GET", _with_query(path, query))

    def fetch(self, path: str, **query: Any) -> bytes:
        """Return the bytes of a response that is not JSON; raise ``Failure``."""
        answer = self._send("GET", _with_query(path, query), None)
        if answer.status >= 300:
            raise ApiError(answer.status, _message(answer), advice=_advice(answer.status))
        return bytes(answer.data)

    def post(self, path: str, body: Json = None) -> Json:
        return self.call("POST", path, body)

    def put(self, path: str, body: Json = None) -> Json:
        return self.call("PUT", path, body)

    def patch(self, path: str, body: Json) -> Json:
        return self.call("PATCH", path, body)

    def delete(self, path: str) -> Json:
        return self.call("DELETE", path)

    def pages(self, path: str, key: str, *, limit: int | None = None, **query: Any) -> Iterator[Json]:
        """Yield the items of a list, page by page, at most ``limit``."""
        marker, left = None, limit
        while left is None or left > 0:
            page = self.get(path, marker=marker, limit=left, **query)
            items = page[key]
            yield from items
            left = None if left is None else left - len(items)
            if "next" not in page or not items:
                return
            marker = items[-1]["uuid"]

    def call(self, method: str, target: str, body: Json = None) -> Json:
        """Return the decoded response, None if it has no body; raise ``Failure``."""
        import msgspec

        content = None if body is None else msgspec.json.encode(body)
        deadline = time.monotonic() + self._patience
        while True:
            answer = self._send(method, target, content)
            if answer.status != 503 or time.monotonic() >= deadline:
                break
            time.sleep(_pause(answer.headers.get("Retry-After")))
        if answer.status >= 300:
            raise ApiError(answer.status, _message(answer), advice=_advice(answer.status))
        try:
            return msgspec.json.decode(answer.data) if answer.data else None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise Failure(
                f"invalid response from {self.url}: not JSON",
                advice="check that the URL is that of the Bare Metal API, by default port 6385",
            ) from None

    def _send(self, method: str, target: str, content: bytes | None) -> Any:
        import urllib3

        if self._pool is None:
            limits = urllib3.Timeout(connect=min(_CONNECT_SECONDS, self._seconds), read=self._seconds)
            self._pool = urllib3.PoolManager(timeout=limits, retries=False, headers=_headers())
        tries = 2 if method == "GET" else 1
        while True:
            tries -= 1
            try:
                return self._pool.request(method, self.url + target, body=content)
            except urllib3.exceptions.ProtocolError as exc:
                if not tries:
                    raise UnreachableError(self.url, _reason(exc)) from None
            except urllib3.exceptions.HTTPError as exc:
                raise UnreachableError(self.url, _reason(exc)) from None


def node_path(ident: str, *rest: str) -> str:
    """Return the path of a node, or of one of its subresources."""
    return "/".join(["/v1/nodes", segment(ident), *rest])


def segment(ident: str) -> str:
    """Return an identifier as a path segment; ``Failure`` for one that would change the path."""
    if ident in ("", ".", ".."):
        raise Failure(
            f"invalid identifier {ident!r}",
            exit_code=Exit.NOT_FOUND,
            advice="if it comes from a variable in a script, check that the variable is set",
        )
    return quote(ident, safe="")


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise Failure(
            f'invalid URL "{url}": expected http://HOST[:PORT]',
            exit_code=Exit.USAGE,
            advice=f"set --url or FERROSCOPE_URL, for example to {DEFAULT_URL}",
        )
    return url.rstrip("/").removesuffix("/v1")


def _headers() -> dict[str, str]:
    return {_VERSION_HEADER: "latest", "Accept": "application/json", "Content-Type": "application/json"}


def _with_query(path: str, query: dict[str, Any]) -> str:
    given = {name: _text(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _pause(retry_after: str | None) -> float:
    return min(float(retry_after), _LONGEST_PAUSE) if retry_after and retry_after.isdigit() else 1.0


def _reason(exc: Exception) -> str:
    """Return why a connection failed, in a few words."""
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, TimeoutError):
            return "timed out"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    text = str(exc.args[-1]) if exc.args else type(exc).__name__
    return text.rpartition(": ")[2][:200] if "Failed to" in text else text[:200]


def _message(answer: Any) -> str:
    """Return the message in an error response of either API."""
    import msgspec

    try:
        body = msgspec.json.decode(answer.data)
        if "error_message" in body:
            inner = body["error_message"]
            fault = msgspec.json.decode(inner) if isinstance(inner, str) else inner
            return as_commands(str(fault["faultstring"]))
        return as_commands(str(body["error"]["message"]))
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError):
        return f"unexpected response: HTTP {answer.status} {answer.reason or ''}".rstrip()


def as_commands(message: str) -> str:
    """Return a message of the API with commands in place of API calls."""
    for call, command in _AS_COMMANDS:
        message = call.sub(command, message)
    return message


def _advice(status: int) -> str:
    return "try again later; the log of the service has the reason" if status == 503 else ""
