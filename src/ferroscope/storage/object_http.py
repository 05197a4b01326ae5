"""HTTP for object stores: complete responses only, with a time limit and retries.

A try ends after ``timeout`` seconds, including DNS, TLS, headers and the last byte of the body; there are ``retries``,
with delays that the stop flag interrupts. TLS certificates are always verified. Messages name the store and the error,
never a header or a URL with a query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
import urllib3

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.contracts.store import StopFlag
from ferroscope.remote.bounded_http import HttpAnswer, limit_connections
from ferroscope.remote.calls import Deadline, DeadlineError, backoff, call_with_retries

T = TypeVar("T")

MAX_RESPONSE_BYTES: Final = 256 * 1024 * 1024
_CHUNK_BYTES: Final = 1 << 16
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds per try, the number of retries, seconds before the first retry (backoff each time), and the stop flag,
    which interrupts the delays."""

    timeout: float = 10.0
    retries: int = 2
    pause: float = 0.2
    stop: StopFlag = msgspec.field(default_factory=threading.Event)

    def call_with_retries(self, attempt: Callable[[], T], is_retryable: Callable[[Exception], bool]) -> T:
        """Return the result of the first successful try; raise the last error, or one that ``is_retryable`` rejects."""
        pauses = backoff(self.pause, self.retries)
        return call_with_retries(
            attempt, pauses=pauses, is_retryable=lambda exc, _pause: is_retryable(exc), stop=self.stop
        )


class _BusyError(Exception):
    """The store asked to retry later."""

    def __init__(self, answer: HttpAnswer) -> None:
        super().__init__()
        self.answer = answer


class ObjectHttp:
    """Requests to one store, from any number of threads; ``name`` is used in messages."""

    def __init__(self, name: str, patience: RetryPolicy, *, ca_file: str = "") -> None:
        self.name = name
        self._patience = patience
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=patience.timeout, read=patience.timeout),
            retries=False,
            maxsize=8,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file or None,
        )
        limit_connections(self._pool)

    def send(
        self, method: str, url: str, sign: Callable[[], Mapping[str, str]], body: bytes | None = None
    ) -> HttpAnswer:
        """Return the response; ``sign`` creates the headers of each try. ``ObjectStoreError`` if there was none."""

        def attempt() -> HttpAnswer:
            answer = self._once(method, url, sign(), body)
            if answer.status in _AGAIN:
                raise _BusyError(answer)
            return answer

        try:
            return self._patience.call_with_retries(attempt, lambda exc: isinstance(exc, ObjectStoreError | _BusyError))
        except _BusyError as exc:
            return exc.answer

    def refusal(self, answer: HttpAnswer, action: str) -> ObjectStoreError:
        """Return the error for an unexpected response."""
        return ObjectStoreError(f"{self.name} refused to {action}: HTTP {answer.status}")

    def close(self) -> None:
        """Close all idle connections."""
        self._pool.clear()

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> HttpAnswer:
        with Deadline(self._patience.timeout) as deadline:
            try:
                return self._exchange(method, url, headers, body, deadline)
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError) as exc:
                if deadline.has_expired:
                    message = f"{self.name} timed out after {self._patience.timeout:g} s"
                else:
                    message = f"cannot reach {self.name}: {type(getattr(exc, 'reason', None) or exc).__name__}"
                raise ObjectStoreError(message) from exc

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, deadline: Deadline
    ) -> HttpAnswer:
        response = self._pool.request(method, url, headers=headers, body=body, preload_content=False, redirect=False)
        try:
            content = b"".join(self._chunks(response))
        except BaseException:
            response.close()
            raise
        deadline.seconds_left()  # headers cut off by the deadline look like a response without a body
        response.release_conn()
        return HttpAnswer(response.status, response.headers, content)

    def _chunks(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        size = 0
        while chunk := response.read1(_CHUNK_BYTES):
            size += len(chunk)
            if size > MAX_RESPONSE_BYTES:
                raise ObjectStoreError(f"{self.name} sent more than {MAX_RESPONSE_BYTES} bytes")
            yield chunk


# The result of a Swift login, and validation of its configuration.


class StorageAccess(msgspec.Struct, frozen=True):
    """A token, and the account's URL."""

    token: str
    url: str

    def __repr__(self) -> str:
        return f"Access({self.url})"


def problem(swift: SwiftSettings) -> str | None:
    """Return what is missing in ``[swift]``, or None. Contacts no server."""
    if swift.application_credential_id or swift.application_credential_secret:
        return _problem_of_application_credential(swift)
    needed = {"username": swift.username, "password": swift.password}
    if swift.auth_version != "1":
        needed["project_name"] = swift.project_name
    missing = [name for name, value in needed.items() if not value]
    return f"[swift] requires {' and '.join(missing)}, or an application credential" if missing else None


def _problem_of_application_credential(swift: SwiftSettings) -> str | None:
    if swift.auth_version == "1":
        return "[swift] application credentials require Keystone; set auth_version to 3, or remove them"
    if not (swift.application_credential_id and swift.application_credential_secret):
        return "[swift] requires both application_credential_id and application_credential_secret"
    if swift.username or swift.password:
        return "[swift] has an application credential as well as username and password; remove the latter"
    return None
