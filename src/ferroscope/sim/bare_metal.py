"""The few calls of the Bare Metal API that enrolment needs, over kept connections.

Source: the Bare Metal API reference, microversion 1.80. Transient answers (503, a broken connection) are
tried again, which is safe because every call here may be repeated; urllib3 would log each of its own tries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import urllib3

from ferroscope.first_use import ready

_VERSION: Final = {"X-OpenStack-Ironic-API-Version": "1.80"}
_TRIES: Final = 6
_FIRST_WAIT: Final = 0.1
_POLL_INTERVAL: Final = 0.25


class BareMetalError(Exception):
    """The API did not do what was asked; the message is its own."""


class Node(msgspec.Struct, frozen=True):
    """What enrolment reads of a node."""

    uuid: str
    name: str | None = None
    provision_state: str = "enroll"
    driver_info: dict[str, Any] = {}
    last_error: str | None = None


class NodePage(msgspec.Struct, frozen=True):
    """One page of nodes; ``next`` is the URL of the one after it."""

    nodes: list[Node]
    next: str | None = None


ready(Node, NodePage)


class BareMetal:
    """The few calls that enrolment needs. Thread-safe; ``url`` is the API's root."""

    def __init__(self, url: str, *, threads: int, headers: Mapping[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._pool = urllib3.PoolManager(
            maxsize=threads, block=True, retries=False, timeout=30.0, headers={**_VERSION, **(headers or {})}
        )

    def wait_up(self, seconds: float) -> bool:
        """Return whether the API has answered within ``seconds``, however it did."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._pool.request("GET", f"{self._url}/v1/")
            except urllib3.exceptions.HTTPError:
                if time.monotonic() > end:
                    return False
                time.sleep(_POLL_INTERVAL)
            else:
                return True

    def call(
        self, method: str, path: str, body: object = None, *, accept: Iterable[int] = ()
    ) -> urllib3.BaseHTTPResponse:
        """Return the answer of 2xx, or of a status in ``accept``; else raise ``BareMetalError``."""
        answer = self._answer(method, path, body)
        if answer.status >= 300 and answer.status not in accept:
            raise BareMetalError(f"{method} {path}: {answer.status} {_message(answer.data)}")
        return answer

    def _answer(self, method: str, path: str, body: object) -> urllib3.BaseHTTPResponse:
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                answer = self._pool.request(method, self._url + path, json=body)
            except urllib3.exceptions.HTTPError as error:
                if last:
                    raise BareMetalError(f"the Bare Metal API at {self._url} does not answer: {error}") from error
            else:
                if last or answer.status != 503:
                    return answer
            time.sleep(_FIRST_WAIT * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _message(data: bytes) -> str:
    """Return the readable part of an error's body, which may be JSON within JSON."""
    text = data.decode(errors="replace")
    try:
        document = msgspec.json.decode(text)["error_message"]
        fault = msgspec.json.decode(document) if isinstance(document, str) else document
        return str(fault["faultstring"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return text[:200]
