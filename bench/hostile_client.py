"""Calls to the service from any address of this host: single ones, regular ones, and those of a crowd."""

from __future__ import annotations

import http.client
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from bench.hostile_bodies import UNKNOWN_MAC, known

CALLBACK: Final = "/v1/continue_inspection"
CLIENTS: Final = 16
_HEALTH_SOURCE: Final = "127.0.1.1"
_ANSWER_SECONDS: Final = 60.0
_VERSION: Final = "1.96"


class ServiceApi:
    """Calls to the service's API from any address of this host."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        source: str = "127.0.0.1",
        seconds: float = _ANSWER_SECONDS,
    ) -> tuple[int, bytes]:
        """Return status and body of the answer; ``OSError`` if there is none in time."""
        raw = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
        connection = http.client.HTTPConnection(self._address, timeout=seconds, source_address=(source, 0))
        try:
            headers = {"X-OpenStack-Ironic-API-Version": _VERSION, "Content-Type": "application/json"}
            connection.request(method, path, raw, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    def made(self, method: str, path: str, body: object = None) -> Any:
        """Return the decoded answer; ``RuntimeError`` if it is an error."""
        status, raw = self.call(method, path, body)
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {raw[:300]!r}")
        return msgspec.json.decode(raw) if raw else None

    def add_node(self, name: str, **fields: Any) -> str:
        return str(self.made("POST", "/v1/nodes", {"driver": "fake-hardware"} | fields | {"name": name})["uuid"])

    def state(self, uuid: str) -> str:
        return str(self.made("GET", f"/v1/nodes/{uuid}?fields=provision_state")["provision_state"])

    def ask(self, uuid: str, target: str) -> None:
        self.made("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": target})

    def add_machine(self, name: str, mac: str) -> str:
        """Add a machine that can be inspected; return its UUID."""
        uuid = self.add_node(name)
        self.made("POST", "/v1/ports", {"node_uuid": uuid, "address": mac})
        self.ask(uuid, "manage")
        self.until(uuid, lambda state: state == "manageable")
        return uuid

    def until(self, uuid: str, there: Callable[[str], bool], pause: float = 0.02) -> None:
        end = time.monotonic() + _ANSWER_SECONDS
        while not there(state := self.state(uuid)):
            if time.monotonic() > end:
                raise RuntimeError(f"the node {uuid} is still {state}")
            time.sleep(pause)


class Looker(threading.Thread):
    """Calls ``path`` from an address of its own, ten times a second, until it is left."""

    def __init__(self, url: str, path: str) -> None:
        super().__init__(name="looker")
        self._api, self._path, self._over = ServiceApi(url), path, threading.Event()
        self.seconds: list[float] = []
        self.failed: list[str] = []

    def run(self) -> None:
        while not self._over.wait(0.1):
            began = time.monotonic()
            try:
                answer = str(self._api.call("GET", self._path, source=_HEALTH_SOURCE)[0])
            except OSError as exc:
                answer = type(exc).__name__
            self.seconds.append(time.monotonic() - began)
            if answer != "200":
                self.failed.append(answer)

    def __enter__(self) -> Looker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def send(url: str, seconds: float, sources: int, mac: str) -> dict[str, int]:
    """Send the known bodies, of a machine that is waited for and of an unknown one; return answers by status."""
    api, end, answers = ServiceApi(url), time.monotonic() + seconds, Counter[str]()
    raw = [body(one) for number, (_, body) in enumerate(known()) for one in (mac, UNKNOWN_MAC) if number % 3 == 0]

    def run(client: int) -> None:
        for number in itertools.count(client):
            if time.monotonic() > end:
                return
            source = f"127.0.0.{2 + number * 7 % sources}"
            try:
                answers[str(api.call("POST", CALLBACK, raw[number % len(raw)], source=source)[0])] += 1
            except (OSError, http.client.HTTPException) as exc:
                answers[type(exc).__name__] += 1

    threads = [threading.Thread(target=run, args=(client,)) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers
