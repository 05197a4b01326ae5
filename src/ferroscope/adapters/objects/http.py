"""HTTP for object stores: whole answers only, within a time, tried again where that may help.

One try ends at the latest after twice ``timeout`` seconds (a socket's wait, and one more that
had begun before); there are ``retries`` more. TLS certificates are always verified. Messages
name the store and what happened, never a header or an address with a query.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec
import urllib3

from ferroscope.ports.objects import ObjectStoreError

MAX_SIZE: Final = 256 * 1024 * 1024
_CHUNK: Final = 1 << 16
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})
_PAUSE: Final = 0.2


class Answer(msgspec.Struct, frozen=True):
    """Status, headers and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http:
    """Requests to one store, by any number of threads; ``name`` is what messages call it."""

    def __init__(self, name: str, *, timeout: float, retries: int, ca_file: str = "") -> None:
        self.name = name
        self._timeout = timeout
        self._retries = retries
        self._pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=timeout, read=timeout),
            retries=False,
            maxsize=8,
            cert_reqs="CERT_REQUIRED",
            ca_certs=ca_file or None,
        )

    def send(self, method: str, url: str, sign: Callable[[], Mapping[str, str]], body: bytes | None = None) -> Answer:
        """Return the last try's answer; ``sign`` makes the headers of each. ``ObjectStoreError`` where none came."""
        for tries_left in range(self._retries, -1, -1):
            try:
                answer = self._once(method, url, sign(), body)
                if answer.status not in _AGAIN or not tries_left:
                    return answer
            except (urllib3.exceptions.HTTPError, OSError) as exc:
                if not tries_left:
                    reason = getattr(exc, "reason", None) or exc
                    raise ObjectStoreError(f"{self.name} does not answer: {type(reason).__name__}") from exc
            time.sleep(_PAUSE * 2 ** (self._retries - tries_left))
        raise AssertionError("unreachable")

    def refusal(self, answer: Answer, what: str) -> ObjectStoreError:
        """Return the error that an answer means which is none of those expected."""
        return ObjectStoreError(f"{self.name} refused to {what}: it answered {answer.status}")

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._pool.clear()

    def _once(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        deadline = time.monotonic() + self._timeout
        response = self._pool.request(method, url, headers=headers, body=body, preload_content=False, redirect=False)
        try:
            content = b"".join(self._chunks(response, deadline))
        except BaseException:
            response.close()
            raise
        response.release_conn()
        return Answer(response.status, response.headers, content)

    def _chunks(self, response: urllib3.BaseHTTPResponse, deadline: float) -> Iterator[bytes]:
        size = 0
        while chunk := response.read1(_CHUNK):
            size += len(chunk)
            if size > MAX_SIZE:
                raise ObjectStoreError(f"{self.name} sent more than {MAX_SIZE} bytes")
            if time.monotonic() > deadline:
                raise ObjectStoreError(f"{self.name} did not send its answer within {self._timeout:g} s")
            yield chunk
