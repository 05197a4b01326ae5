"""HTTP for object stores: whole answers only, within a time, tried again where that may help.

A try ends after ``timeout`` seconds, name look-up, TLS, every header and the last byte of the body
included; there are ``retries`` more, after pauses that the stop flag ends. TLS certificates are always
verified. Messages name the store and what happened, never a header or an address with a query.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

import msgspec
import urllib3

from ferroscope.config.options import SwiftSettings
from ferroscope.contracts.queue import StopFlag
from ferroscope.contracts.remote import ObjectStoreError
from ferroscope.remote.bounded_http import Deadline, DeadlineError, bound
from ferroscope.remote.retry import doubled, until_it_works

T = TypeVar("T")

MAX_SIZE: Final = 256 * 1024 * 1024
_CHUNK: Final = 1 << 16
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds for one try, how many more there are, seconds before the first of these (doubled each time), and
    what ends the pauses: the process shall stop."""

    timeout: float = 10.0
    retries: int = 2
    pause: float = 0.2
    stop: StopFlag = msgspec.field(default_factory=threading.Event)

    def until_it_works(self, attempt: Callable[[], T], hope: Callable[[Exception], bool]) -> T:
        """Return what one of the tries returns; the last one's error, or one of which there is no ``hope``."""
        pauses = doubled(self.pause, self.retries)
        return until_it_works(attempt, pauses=pauses, hope=lambda exc, _pause: hope(exc), stop=self.stop)


class Answer(msgspec.Struct, frozen=True):
    """Status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _BusyError(Exception):
    """It answered that it may do so later."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


class Http:
    """Requests to one store, by any number of threads; ``name`` is what messages call it."""

    def __init__(self, name: str, patience: Patience, *, ca_file: str = "") -> None:
        self.name = name
        self._patience = patience
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=patience.timeout, read=patience.timeout),
            retries=False,
            maxsize=8,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file or None,
        )
        bound(self._pool)

    def send(self, method: str, url: str, sign: Callable[[], Mapping[str, str]], body: bytes | None = None) -> Answer:
        """Return the last try's answer; ``sign`` makes the headers of each. ``ObjectStoreError`` where none came."""

        def attempt() -> Answer:
            answer = self._once(method, url, sign(), body)
            if answer.status in _AGAIN:
                raise _BusyError(answer)
            return answer

        try:
            return self._patience.until_it_works(attempt, lambda exc: isinstance(exc, ObjectStoreError | _BusyError))
        except _BusyError as exc:
            return exc.answer

    def refusal(self, answer: Answer, what: str) -> ObjectStoreError:
        """Return the error that an answer means which is none of those expected."""
        return ObjectStoreError(f"{self.name} refused to {what}: it answered {answer.status}")

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._pool.clear()

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        with Deadline(self._patience.timeout) as deadline:
            try:
                return self._exchange(method, url, headers, body, deadline)
            except (urllib3.exceptions.HTTPError, OSError, DeadlineError) as exc:
                if deadline.expired:
                    message = f"{self.name} did not send its answer within {self._patience.timeout:g} s"
                else:
                    message = f"{self.name} does not answer: {type(getattr(exc, 'reason', None) or exc).__name__}"
                raise ObjectStoreError(message) from exc

    def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, deadline: Deadline
    ) -> Answer:
        response = self._pool.request(method, url, headers=headers, body=body, preload_content=False, redirect=False)
        try:
            content = b"".join(self._chunks(response))
        except BaseException:
            response.close()
            raise
        deadline.left()  # headers that were cut off by it look like an answer without a body
        response.release_conn()
        return Answer(response.status, response.headers, content)

    def _chunks(self, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
        size = 0
        while chunk := response.read1(_CHUNK):
            size += len(chunk)
            if size > MAX_SIZE:
                raise ObjectStoreError(f"{self.name} sent more than {MAX_SIZE} bytes")
            yield chunk


# What a log-in to Swift gives, and whether the configuration has all that one needs.


class Access(msgspec.Struct, frozen=True):
    """A token, and the account's address."""

    token: str
    url: str

    def __repr__(self) -> str:
        return f"Access({self.url})"


def problem(swift: SwiftSettings) -> str | None:
    """Return what ``[swift]`` lacks for a log-in, in a sentence, or None. Asks nobody."""
    if swift.application_credential_id or swift.application_credential_secret:
        return _problem_of_application_credential(swift)
    needed = {"username": swift.username, "password": swift.password}
    if swift.auth_version != "1":
        needed["project_name"] = swift.project_name
    missing = [name for name, value in needed.items() if not value]
    return f"[swift] needs {' and '.join(missing)} too, or an application credential" if missing else None


def _problem_of_application_credential(swift: SwiftSettings) -> str | None:
    if swift.auth_version == "1":
        return "[swift] application credentials are Keystone's; set auth_version to 3, or remove them"
    if not (swift.application_credential_id and swift.application_credential_secret):
        return "[swift] needs both application_credential_id and application_credential_secret"
    if swift.username or swift.password:
        return "[swift] has an application credential, so remove username and password: it stands for them"
    return None
