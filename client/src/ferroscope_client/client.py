"""A client of the Bare Metal API: connection pool, pagination, waiting, readable errors.

    client = connect("https://ferroscope.example")          # with this user's credentials, as the command line does
    for node in client.pages("/v1/nodes", "nodes", provision_state="manageable"):
        client.put(node_path(node["uuid"], "states", "provision"), {"target": "inspect"})
    client.wait(node_path("u01"), lambda node: node["provision_state"] == "manageable", until=time.monotonic() + 600)

Paths, queries and documents are those of the API's reference. HTTP libraries are imported with the first request, so
that ``--help`` is fast. Only safe requests are retried: after a
503, reads after a broken connection, and changes that a restarting service did not receive. Redirects are not followed:
credentials are for this service only.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from ferroscope_client.core import json_safety
from ferroscope_client.core.host_spelling import refusal_of_urls
from ferroscope_client.credentials import (
    HOW_TO_LOG_IN,
    NO_CREDENTIALS,
    Credentials,
    check_may_be_sent,
    from_environment,
)
from ferroscope_client.errors import Exit, Failure

if TYPE_CHECKING:
    import ssl

DEFAULT_URL: Final = "http://127.0.0.1:6385"

_VERSION_HEADER: Final = "X-OpenStack-Ironic-API-Version"
_CONNECT_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 60.0
_LONGEST_PAUSE: Final = 5.0
_POLL_SECONDS: Final = 0.25
_CODES: Final = {
    400: Exit.USAGE,
    401: Exit.UNAUTHENTICATED,
    403: Exit.FORBIDDEN,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
}

# API calls in error messages, and the equivalent commands.
_AS_COMMANDS: Final = (
    (re.compile(r"POST /v1/nodes/([^/\s]+)/approve"), r"ferroscope node approve \1"),
    (re.compile(r'PUT /v1/nodes/([^/\s]+)/states/provision with \{"target": "(\w+)"\}'), r"ferroscope node \2 \1"),
    (re.compile(r"PUT /v1/nodes/([^/\s]+)/bmc/password with \{\}"), r"ferroscope bmc set-password \1 --resume"),
    (re.compile(r"GET /v1/nodes/([^/\s]+)/bmc/password"), r"ferroscope node timeline \1"),
    (re.compile(r"GET /v1/drivers/(\S+)/properties"), r"'ferroscope driver properties'"),
    (re.compile(r"GET /v1/drivers"), "'ferroscope driver list'"),
    (re.compile(r"^No valid host was found\. Reason: "), ""),  # Ironic's words, which its clients look for
    (re.compile(r"Set (\w+_password) in the same request"), r"Give it again with -d \1=@-"),
)

Json = Any


_START: Final = "start it with 'ferroscope all', or set --url or FERROSCOPE_URL"


class ServiceError(Failure):
    """The service refused the call, with HTTP ``status``."""

    def __init__(self, status: int, message: str, *, advice: str = "") -> None:
        super().__init__(message, exit_code=_CODES.get(status, Exit.FAILURE), advice=advice)
        self.status = status


class ServiceUnreachableError(Failure):
    """The service did not respond; ``unsent``: it certainly received nothing."""

    def __init__(self, url: str, why: str, advice: str = _START, *, unsent: bool = False) -> None:
        self.unsent = unsent
        super().__init__(
            f"cannot connect to the Bare Metal API at {url}: {why}", exit_code=Exit.UNREACHABLE, advice=advice
        )


class WaitTimeoutError(Failure):
    """The wait is over, and what it was for has not come true; ``newest`` is the newest response."""

    def __init__(self, path: str, newest: Json) -> None:
        super().__init__(f"timed out waiting for {path}", exit_code=Exit.TIMED_OUT)
        self.newest = newest


class Client:
    """All calls raise ``Failure``: ``ServiceError`` if the service refuses, ``ServiceUnreachableError`` if it is away.

    ``patience``: seconds during which a 503 is retried, or a change after the service has stopped listening;
    ``seconds``: timeout of one request.

    ``verify``: whether the server's certificate is verified, ``ca_file``: by these certificates, "": those of the
    system. ``insecure_http`` allows credentials over plain HTTP to other hosts. Not thread-safe.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        credentials: Credentials = NO_CREDENTIALS,
        insecure_http: bool = False,
        verify: bool = True,
        ca_file: str = "",
        patience: float = 15.0,
        seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self.url = _check_url(url)
        if credentials.source:
            check_may_be_sent(self.url, f"the credentials from {credentials.source}", insecure_http=insecure_http)
        self._credentials = credentials
        self._tls: dict[str, Any] = {} if verify else {"cert_reqs": "CERT_NONE"}
        if ca_file:
            self._tls["ca_certs"] = _checked_ca(ca_file)
        self._patience = patience
        self._seconds = seconds
        self._pool: Any = None
        self._answered = False

    @property
    def credential_headers(self) -> Mapping[str, str]:
        """The headers that identify the caller, for another client of the same service."""
        return self._credentials.headers()

    def tls_context(self) -> ssl.SSLContext:
        """Return how another client of the same service verifies its certificate."""
        import ssl

        context = ssl.create_default_context(cafile=self._tls.get("ca_certs"))
        if "cert_reqs" in self._tls:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def get(self, path: str, **query: Any) -> Json:
        """Return the decoded response to GET; parameters that are None are omitted."""
        return self.call("GET", _with_query(path, query))

    def fetch(self, path: str, **query: Any) -> bytes:
        """Return the bytes of a response that is not JSON; raise ``Failure``."""
        answer = self._send("GET", _with_query(path, query), None)
        if answer.status >= 300:
            raise self._refusal(answer)
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

    def wait(
        self,
        path: str,
        reached: Callable[[Json], bool],
        *,
        until: float,
        waiting: Callable[[Json, float], object] = lambda _newest, _seconds_left: None,
        poll_seconds: float = _POLL_SECONDS,
        **query: Any,
    ) -> Json:
        """Return the response to GET as soon as ``reached`` is true for it; ``WaitTimeoutError``.

        ``until``: the end of the wait, by ``time.monotonic``. ``waiting`` receives every other response, and the
        seconds left.
        """
        while not reached(newest := self.get(path, **query)):
            seconds_left = until - time.monotonic()
            if seconds_left <= 0:
                raise WaitTimeoutError(path, newest)
            waiting(newest, seconds_left)
            time.sleep(poll_seconds)
        return newest

    def call(self, method: str, target: str, body: Json = None) -> Json:
        """Return the decoded response, None if it has no body; raise ``Failure``.

        A change has a key, so that it takes effect only once if it is repeated.
        """
        import uuid

        import msgspec

        content = None if body is None else msgspec.json.encode(body)
        key = "" if method == "GET" else str(uuid.uuid4())
        deadline = time.monotonic() + self._patience
        while True:
            try:
                answer = self._send(method, target, content, key)
            except ServiceUnreachableError as exc:
                # Thousands of changes would fail one after the other while an api is restarted.
                if not (key and exc.unsent and self._answered):
                    raise
                if time.monotonic() >= deadline:
                    self._answered = False
                    raise
                time.sleep(_pause(None))
                continue
            self._answered = True
            if answer.status not in (503, 504) or time.monotonic() >= deadline:
                break
            time.sleep(_pause(answer.headers.get("Retry-After")))
        if answer.status >= 300:
            raise self._refusal(answer)
        try:
            return json_safety.decode_own(answer.data) if answer.data else None
        except json_safety.JsonError:
            raise Failure(
                f"invalid response from {self.url}: not JSON",
                advice="check that the URL points to the Bare Metal API, by default on port 6385",
            ) from None

    def _refusal(self, answer: Any) -> Failure:
        """Return the failure for a response that is not a success."""
        if answer.status == 401:
            return self._unauthenticated_error()
        if 300 <= answer.status < 400:
            return Failure(
                f"{self.url} redirects to {str(answer.headers.get('Location'))[:200]}",
                advice="set --url or FERROSCOPE_URL to the address of the Bare Metal API itself",
            )
        advice = ""
        if answer.status == 403 and self._credentials.source:
            advice = f"the call was made with the credentials from {self._credentials.source}"
        return ServiceError(answer.status, _message(answer), advice=advice)

    def _unauthenticated_error(self) -> ServiceError:
        if not self._credentials.source:
            return ServiceError(401, f"{self.url} requires a login", advice=HOW_TO_LOG_IN)
        return ServiceError(
            401,
            f"{self.url} rejected the credentials from {self._credentials.source}",
            advice="they are wrong, expired or revoked, or meant for another service",
        )

    def _send(self, method: str, target: str, content: bytes | None, key: str = "") -> Any:
        answer = self._exchange(method, target, content, key)
        if answer.status == 401 and self._credentials.renew():
            return self._exchange(method, target, content, key)
        return answer

    def _exchange(self, method: str, target: str, content: bytes | None, key: str) -> Any:
        import urllib3

        if self._pool is None:
            limits = urllib3.Timeout(connect=min(_CONNECT_SECONDS, self._seconds), read=self._seconds)
            if "cert_reqs" in self._tls:  # clouds.yaml says so
                urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
            self._pool = urllib3.PoolManager(timeout=limits, retries=False, **self._tls)
        headers = {**_HEADERS, **self._credentials.headers()}
        if method != "GET" and (lease := os.environ.get("FERROSCOPE_IF_LEASE")):  # set by ferroscope lease run
            headers["If-Lease"] = lease
        if key:
            headers["Idempotency-Key"] = key
        tries = 2 if method == "GET" else 1
        while True:
            tries -= 1
            try:
                return self._pool.request(method, self.url + target, body=content, headers=headers, redirect=False)
            except urllib3.exceptions.ProtocolError as exc:
                if not tries:
                    raise ServiceUnreachableError(self.url, *_why(exc, self.url)) from None
            except urllib3.exceptions.HTTPError as exc:
                unsent = isinstance(exc, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError)
                raise ServiceUnreachableError(self.url, *_why(exc, self.url), unsent=unsent) from None


def connect(
    url: str | None,
    *,
    cloud: str | None = None,
    insecure_http: bool = False,
    patience: float = 15.0,
    seconds: float = _ANSWER_SECONDS,
) -> Client:
    """Return a client of the service at ``url`` with this user's credentials; ``Failure``.

    Without a URL it is the cloud's endpoint or, without a cloud, the service of this host.
    """
    ca_file = os.environ.get("FERROSCOPE_CACERT", "")
    if not cloud:
        url = url or DEFAULT_URL
        credentials = from_environment(url)
        return Client(
            url,
            credentials=credentials,
            insecure_http=insecure_http,
            ca_file=ca_file,
            patience=patience,
            seconds=seconds,
        )
    from ferroscope_client.credentials import open_cloud

    identity = open_cloud(cloud, insecure_http=insecure_http)
    verified = identity.verification()
    return Client(
        url or identity.endpoint(),
        credentials=identity,
        insecure_http=insecure_http,
        verify=verified.verify,
        ca_file=ca_file or verified.ca_file,
        patience=patience,
        seconds=seconds,
    )


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


def is_url(text: str) -> bool:
    """Whether this is the URL of a server."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_url(url: str) -> str:
    if why := refusal_of_urls(url):
        raise Failure(f'invalid URL "{url}": {why}', exit_code=Exit.USAGE)
    if not is_url(url):
        raise Failure(
            f'invalid URL "{url}": expected http://HOST[:PORT]',
            exit_code=Exit.USAGE,
            advice=f"set --url or FERROSCOPE_URL, for example to {DEFAULT_URL}",
        )
    return url.rstrip("/").removesuffix("/v1")


def _checked_ca(file: str) -> str:
    if not os.path.isfile(file):  # noqa: PTH113  # the path as it was given
        raise Failure(
            f"the file of certificates {file} does not exist",
            exit_code=Exit.USAGE,
            advice="check FERROSCOPE_CACERT, or cacert in clouds.yaml",
        )
    return file


_HEADERS: Final = {_VERSION_HEADER: "latest", "Accept": "application/json", "Content-Type": "application/json"}


def _with_query(path: str, query: dict[str, Any]) -> str:
    parameters = {name: _text(value) for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else str(value)


def _pause(retry_after: str | None) -> float:
    return min(float(retry_after), _LONGEST_PAUSE) if retry_after and retry_after.isdigit() else 1.0


def _why(exc: Exception, url: str) -> tuple[str, str]:
    """Return why a connection failed, in a few words, and what to do."""
    import socket
    import ssl

    from ferroscope_client.core.tls_errors import is_plain

    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = f"its certificate is not trusted: {cause.verify_message}"
            return why, "set FERROSCOPE_CACERT, or cacert in clouds.yaml, to the certificate of its CA"
        if isinstance(cause, ssl.SSLError) and is_plain(cause):
            plain = f"http://{urlsplit(url).netloc}"
            return "the port serves plain HTTP, not HTTPS", f"use its HTTPS port, or --url {plain}"
        if isinstance(cause, TimeoutError):
            return "timed out", "check host and port of --url or FERROSCOPE_URL, and the network to them"
        if isinstance(cause, socket.gaierror):
            return str(cause.strerror).lower(), "check the host name in --url or FERROSCOPE_URL"
        if isinstance(cause, ConnectionResetError) and url.startswith("http://"):
            why = cause.strerror or "the server closed the connection without answering"
            return why.lower(), "if the port serves HTTPS, use https:// in --url or FERROSCOPE_URL"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower(), _START
        cause = cause.__cause__ or cause.__context__
    text = str(exc.args[-1]) if exc.args else type(exc).__name__
    return (text.rpartition(": ")[2][:200] if "Failed to" in text else text[:200]), _START


def _message(answer: Any) -> str:
    """Return the message in an error response of either API."""

    try:
        body = json_safety.decode_own(answer.data)
        if "error_message" in body:
            inner = body["error_message"]
            fault = json_safety.decode_own(inner) if isinstance(inner, str) else inner
            return as_commands(str(fault["faultstring"]))
        return as_commands(str(body["error"]["message"]))
    except (json_safety.JsonError, KeyError, TypeError):
        return f"unexpected response: HTTP {answer.status} {answer.reason or ''}".rstrip()


def as_commands(message: str) -> str:
    """Return a message of the API in the words of the command line."""
    for call, command in _AS_COMMANDS:
        message = call.sub(command, message)
    return message
