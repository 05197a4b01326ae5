"""Machines with odd inventories in a service of real processes: each is inspected, or its node soon says why not."""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from bench.service import service
from tests.support.fuzz.drill import every_hook
from tests.support.fuzz.inventories import Inventory, inventories
from tests.support.processes import PATIENCE, until

# Seconds after its callback within which a node must say what became of it; a busy machine is given its time.
SOON: Final = 5.0


class Met(msgspec.Struct, kw_only=True):
    """What became of one: the status of the answer, what its node says, and after how long."""

    inventory: Inventory
    status: int
    inspected: bool
    error: str | None
    steps: list[str]
    seconds: float

    @property
    def fault(self) -> str:
        """What must not be, "" if nothing is wrong."""
        if self.status >= 500:
            return f"answered {self.status}"
        if self.inspected:
            return ""
        if not self.error:
            return "neither inspected, nor does last_error say why not"
        noted = {"failed", "callback-refused"} & set(self.steps)
        return "" if noted else f"the timeline does not say why not: {self.steps}"


class Fleet(msgspec.Struct, kw_only=True):
    """What became of all of them; ``faults`` must be empty."""

    met: list[Met] = []
    faults: list[str] = []

    def told(self) -> str:
        kinds: dict[str, Counter[bool]] = {}
        for one in self.met:
            kinds.setdefault(one.inventory.kind, Counter())[one.inspected] += 1
        lines = [f"{kind}: {found[True]} inspected, {found[False]} refused" for kind, found in kinds.items()]
        inspected, slowest = sum(one.inspected for one in self.met), max(one.seconds for one in self.met)
        total = f"{len(self.met)} odd inventories: {inspected} inspected, {len(self.met) - inspected} refused"
        return "\n".join([*lines, f"{total}; the slowest node said so after {slowest:.1f} s"])


def run(directory: Path, database_url: str, *, count: int = 203, seed: int = 1) -> Fleet:
    """Let so many machines call back; return what became of them."""
    fleet = Fleet()
    with service(
        directory, database_url, extra=f"[inspector]\nhooks = {every_hook()}\n[api]\nfailure_rate = 0\n"
    ) as running:
        http = urllib3.PoolManager(headers={"X-OpenStack-Ironic-API-Version": "1.95"}, retries=False, maxsize=8)
        site = _Site(http, running.url)
        wanted = list(inventories(count, seed))
        with ThreadPoolExecutor(4) as pool:
            nodes = list(pool.map(site.waiting, wanted))
            fleet.met = list(pool.map(site.meet, wanted, nodes))
        fleet.faults += [f"{name} died" for name, role in running.roles.items() if role.process.poll() is not None]
        http.clear()
    for one in fleet.met:
        if one.fault:
            fleet.faults.append(f"machine {one.inventory.number} ({one.inventory.kind}): {one.fault}; {one.error}")
    fleet.faults += [line for role in running.roles.values() for line in role.faults()][:20]
    return fleet


class _Site:
    """The calls of an operator and of the machines."""

    def __init__(self, http: urllib3.PoolManager, url: str) -> None:
        self._http = http
        self._url = url

    def waiting(self, inventory: Inventory) -> str:
        """Return the node of this machine, which waits for it."""
        uuid = str(self._call("POST", "/v1/nodes", {"driver": "fake-hardware"})["uuid"])
        self._call("POST", "/v1/ports", {"node_uuid": uuid, "address": inventory.mac})
        self._call("PUT", f"/v1/nodes/{uuid}/states/provision", {"target": "inspect"})
        assert until(lambda: self._node(uuid)["provision_state"] == "inspect wait", seconds=PATIENCE)
        return uuid

    def meet(self, inventory: Inventory, node: str) -> Met:
        """Let the machine call back, and wait until its node says what became of that."""
        began = time.monotonic()
        answer = self._request("POST", "/v1/continue_inspection", inventory.body, version="1.84")
        until(lambda: self._is_over(node), seconds=6 * SOON)
        seconds, found = time.monotonic() - began, self._node(node)
        newest = self._call("GET", f"/v1/nodes/{node}/timeline")["inspections"][0]
        return Met(
            inventory=inventory,
            status=answer.status,
            inspected=found["provision_state"] == "manageable",
            error=found["last_error"],
            steps=[entry["step"] for entry in newest["entries"]],
            seconds=seconds,
        )

    def _is_over(self, node: str) -> bool:
        found = self._node(node)
        return found["provision_state"] in ("manageable", "inspect failed") or found["last_error"] is not None

    def _node(self, uuid: str) -> dict[str, Any]:
        found: dict[str, Any] = self._call("GET", f"/v1/nodes/{uuid}?fields=provision_state,last_error")
        return found

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._request(method, path, None if body is None else msgspec.json.encode(body))
        assert answer.status < 300, answer.data
        return msgspec.json.decode(answer.data) if answer.data else None

    def _request(self, method: str, path: str, body: bytes | None, version: str = "1.95") -> Any:
        headers = {"X-OpenStack-Ironic-API-Version": version}
        return self._http.request(method, self._url + path, body=body, headers=headers)
