"""The operator: starts inspections through HAProxy, one after the other on each node, and keeps account.

What was answered 202 is accepted. A request without a usable answer is counted as failed, and put again, as an
operator does; the 409 that the repetition of a request may meet says that the first one was accepted.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import msgspec
import urllib3

from tests.support.cluster.cluster import Cluster, pool
from tests.support.processes import PATIENCE

_BUSY: Final = frozenset({"inspecting", "inspect wait"})
_LOOK_EVERY: Final = 0.25
_AGAIN: Final = 0.25


class Flight(msgspec.Struct):
    """One accepted inspection, in seconds of the monotonic clock; ``state`` is where the node came to rest."""

    node: str
    name: str
    accepted: float
    ended: float = 0.0
    state: str = ""


class Operator(threading.Thread):
    """Inspects every node ``rounds`` times; None: until ``finish`` is called, then waits for what is in flight.

    ``limit`` returns how many inspections may have been asked for by now, in all.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        rounds: int | None,
        at_once: int = 50,
        give_up: float = PATIENCE,
        limit: Callable[[], float] = lambda: math.inf,
    ) -> None:
        super().__init__(name="operator", daemon=True)
        self._url = cluster.url
        self._rounds = rounds
        self._at_once = at_once
        self._give_up = give_up
        self._limit = limit
        self._asked = 0
        self._http = pool(16)
        self._begun: dict[str, int] = {}
        self._asking: dict[str, Future[bool]] = {}
        self._flying: dict[str, Flight] = {}
        self._names: dict[str, str] = {}
        self._finish = threading.Event()
        self.flights: list[Flight] = []
        self.lost: list[Flight] = []
        self.failed: list[str] = []
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Inspect; ``lost`` has those that did not end within ``give_up`` seconds."""
        try:
            with ThreadPoolExecutor(8, thread_name_prefix="operator") as executor:
                while not self._step(executor):
                    time.sleep(_LOOK_EVERY)
        except BaseException as fault:  # noqa: BLE001  # handed to whoever joins
            self.fault = fault

    def finish(self) -> None:
        """Start no more."""
        self._finish.set()

    def done(self) -> None:
        """Wait for the end, for as long as inspections end or are given up; raise what went wrong."""
        before = -1
        while self.is_alive() and (now := self.ended + len(self.lost)) > before:
            before = now
            self.join(self._give_up + PATIENCE)
        if self.fault is not None:
            raise self.fault
        if self.is_alive():
            raise RuntimeError(f"the operator did not come to an end; in flight: {sorted(self._flying)}")

    @property
    def ended(self) -> int:
        return len(self.flights)

    @property
    def accepted(self) -> int:
        return len(self.flights) + len(self._flying) + len(self.lost)

    def _step(self, executor: ThreadPoolExecutor) -> bool:
        self._collect()
        watched = dict(self._flying)
        states = self._states()
        if not states:  # not answered, which says nothing about any node
            return False
        for node, flight in watched.items():
            self._look(node, flight, states.get(node, "gone"))
        idle = [node for node in states if node not in self._flying and node not in self._asking and self._more(node)]
        idle.sort(key=lambda node: self._begun.get(node, 0))
        room = min(self._at_once - len(self._flying) - len(self._asking), self._limit() - self._asked)
        for node in idle[: max(0, int(room))]:
            self._asked += 1
            self._begun[node] = self._begun.get(node, 0) + 1
            self._asking[node] = executor.submit(self._ask, node)
        return not idle and not self._flying and not self._asking

    def _collect(self) -> None:
        for node, asked in list(self._asking.items()):
            if asked.done():
                del self._asking[node]
                if asked.result():
                    self._flying[node] = Flight(node, self._names[node], time.monotonic())

    def _look(self, node: str, flight: Flight, state: str) -> None:
        now = time.monotonic()
        if state not in _BUSY:
            flight.ended, flight.state = now, state
            self.flights.append(self._flying.pop(node))
        elif now - flight.accepted > self._give_up:
            flight.state = state
            self.lost.append(self._flying.pop(node))
            self._begun[node] = 1 << 30  # nothing more with this one

    def _more(self, node: str) -> bool:
        if self._finish.is_set():
            return False
        return self._rounds is None or self._begun.get(node, 0) < self._rounds

    def _ask(self, node: str) -> bool:
        """Put the node into inspection; whether that was accepted before ``finish``."""
        uncertain = False
        while True:
            status = self._call("PUT", f"/v1/nodes/{node}/states/provision", {"target": "inspect"})[0]
            if status == 202 or (status == 409 and uncertain):
                return True
            if status not in (0, 409, 500, 502, 503, 504):
                raise RuntimeError(f"inspection of {node} was answered {status}")
            uncertain = uncertain or status != 409
            time.sleep(_AGAIN)

    def _states(self) -> dict[str, str]:
        """Return the provision states of all nodes; nothing where that was not answered."""
        states: dict[str, str] = {}
        marker = ""
        while True:
            status, body = self._call("GET", f"/v1/nodes?fields=uuid,name,provision_state&limit=1000{marker}")
            if status != 200:
                return {}
            for node in body["nodes"]:
                states[node["uuid"]] = node["provision_state"]
                self._names[node["uuid"]] = node["name"]
            if not body.get("next"):
                return states
            marker = f"&marker={body['nodes'][-1]['uuid']}"

    def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {**self._http.headers, "Content-Type": "application/json"}
        try:
            answer = self._http.request(
                method, self._url + path, body=None if body is None else msgspec.json.encode(body), headers=headers
            )
        except urllib3.exceptions.HTTPError as exc:
            self.failed.append(f"{method} {path}: {type(exc).__name__}")
            return 0, None
        if answer.status >= 500:
            self.failed.append(f"{method} {path}: {answer.status} {answer.data[:100].decode(errors='replace')}")
        return answer.status, msgspec.json.decode(answer.data) if answer.status == 200 else None
