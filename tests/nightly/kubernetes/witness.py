"""Judges the controllers by what others say: the API server's audit log, the hollow kubelets, and the machines' power.

Nothing of the controllers' own records is used. ``Witness`` looks several times a second; ``forced`` and ``unproven``
read the audit log when all is over.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import requests

from ferroscope.contrib.kubernetes.failover.cluster import OUT_OF_SERVICE
from tests.nightly.kubernetes.fleet import Fleet, runs
from tests.nightly.kubernetes.rack import Machine
from tests.support.processes import PATIENCE

_EVERY: Final = 0.2  # seconds between two looks
# Seconds for which a node must have been ready: times of its cluster are whole seconds, and a command takes a moment.
_SETTLED: Final = 3.0
_ANSWER: Final = 1.0  # seconds for a kubelet to answer: one that does not may still run all it ran


class Forced(msgspec.Struct, frozen=True):
    """One deletion or taint of a controller that the API server carried out; ``at`` is when it was received."""

    at: float
    what: str
    node: str
    name: str
    uid: str


class Replaced(msgspec.Struct, frozen=True):
    """A pod of a StatefulSet ran again on another node: seconds after its node was not ready any more."""

    pod: str
    node: str
    seconds: float


class Witness:
    """``with Witness(fleet) as witness``. ``twice``: pods of StatefulSets that ran on two nodes, and when."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._look, args=(look,), daemon=True) for look in (self._kubelets, self._cluster)
        ]
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(fleet.machines)))
        self._last: dict[str, set[str]] = {}
        self._homes: dict[str, tuple[str, str]] = {}  # of a pod that ran: its UID and node
        self._not_ready: dict[str, float] = {}
        self._readiness: dict[str, dict[float, bool]] = {}  # of a node: since when it was ready, or not, by its cluster
        self.deleted_since: dict[str, float] = {}
        self.twice: list[tuple[float, str, tuple[str, ...]]] = []
        self.replaced: list[Replaced] = []
        self.looks = 0
        self.fault: BaseException | None = None

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE)
        self._pool.shutdown()
        if self.fault is not None:
            raise self.fault

    def _look(self, look: Any) -> None:
        while not self._stop.wait(_EVERY):
            try:
                look()
            except (requests.RequestException, TimeoutError):
                continue  # the API server is frozen or dead; that is one of the faults
            except BaseException as fault:  # noqa: BLE001  # raised at the end of the block
                self.fault = fault
                return

    # Which pods really run.

    def _kubelets(self) -> None:
        machines = list(self._fleet.machines.values())
        running = list(self._pool.map(self._running, machines))
        homes: dict[str, list[str]] = {}
        for machine, pods in zip(machines, running, strict=True):
            for pod in pods:
                homes.setdefault(pod, []).append(machine.name)
        for pod, where in homes.items():
            if len(where) > 1:
                self.twice.append((time.time(), pod, tuple(where)))
        self.looks += 1

    def _running(self, machine: Machine) -> set[str]:
        """Return the names of the pods of StatefulSets that run there: as last known where a machine hangs."""
        if not machine.was_on(time.time())[0]:
            self._last.pop(machine.name, None)
            return set()
        try:
            answer = requests.get(f"{machine.node.url}/runningpods/", timeout=_ANSWER)
        except requests.Timeout:
            return self._last.get(machine.name, set())
        except requests.RequestException:  # it has just died, or is not yet up
            return set()
        names = {str(pod["metadata"]["name"]) for pod in answer.json()["items"] or ()}
        found = self._last[machine.name] = {name for name in names if name.rpartition("-")[2].isdigit()}
        return found

    # What the cluster believes.

    def _cluster(self) -> None:
        now = time.time()
        nodes = self._fleet.cluster.call("GET", "/api/v1/nodes")["items"]
        for node in nodes:
            name = node["metadata"]["name"]
            if (since := _changed(node)) is not None:
                self._readiness.setdefault(name, {})[since] = _ready(node)
            if _ready(node):
                self._not_ready.pop(name, None)
            else:
                self._not_ready.setdefault(name, now)
        for pod in self._fleet.cluster.pods():
            meta = pod["metadata"]
            if "deletionTimestamp" in meta:
                self.deleted_since.setdefault(meta["uid"], now)
            if [one["kind"] for one in meta.get("ownerReferences", ())] == ["StatefulSet"] and runs(pod):
                self._ran(meta["name"], meta["uid"], pod["spec"]["nodeName"], now)

    def _ran(self, name: str, uid: str, node: str, now: float) -> None:
        before, old = self._homes.get(name, (uid, node))
        self._homes[name] = (uid, node)
        if before != uid and old != node and (since := self._not_ready.get(old)) is not None:
            self.replaced.append(Replaced(name, old, now - since))

    # What the controllers did.

    def forced(self) -> list[Forced]:
        """Return all that the API server has carried out for the controllers, in order."""
        return list(forced(self._fleet.audit))

    def unproven(self) -> list[Forced]:
        """Return what was forced while the machine was on, and its pod not proven dead by a reboot.

        Somebody may boot a machine between the proof and a deletion. What ran on it is dead nevertheless, and stays so
        until its kubelet runs.
        """
        return [one for one in self.forced() if not self._proven(one, self._fleet.machines)]

    def while_ready(self) -> list[str]:
        """Return the machines that were commanded off while their nodes had been ready for a while, and when."""
        return [
            f"{name} at {at:.1f}"
            for name, machine in self._fleet.machines.items()
            for at, on in machine.commands
            if not on and self._was_ready(name, at)
        ]

    def _was_ready(self, name: str, at: float) -> bool:
        before = [one for one in self._readiness.get(name, {}).items() if one[0] <= at]
        if not before:
            return False
        since, ready = max(before)
        return ready and at - since > _SETTLED

    def booting(self) -> list[Forced]:
        """Return what was forced while the machine was on, but its kubelet did not run yet."""
        return [one for one in self.forced() if self._booting(one, self._fleet.machines[one.node])]

    def ages(self) -> list[float]:
        """Return how old the BMC's answer "off" was when the API server received what it proves, in seconds.

        What a reboot has proven dead needs no such answer, and is left out.
        """
        found = [(one, self._fleet.machines[one.node]) for one in self.forced()]
        return [machine.since_said_off(one.at) for one, machine in found if not self._rebooted(one, machine)]

    def _rebooted(self, one: Forced, machine: Machine) -> bool:
        """Whether it is a pod that was being deleted before the machine's present boot."""
        on, since = machine.was_on(one.at)
        return on and self.deleted_since.get(one.uid, since) < since

    def _proven(self, one: Forced, machines: Mapping[str, Machine]) -> bool:
        machine = machines[one.node]
        return not machine.was_on(one.at)[0] or self._booting(one, machine) or self._rebooted(one, machine)

    def _booting(self, one: Forced, machine: Machine) -> bool:
        on, since = machine.was_on(one.at)
        return on and one.at < machine.node.began(since)


def forced(audit: Path) -> Iterator[Forced]:
    """Yield the deletions and the out-of-service taints in an audit log that were carried out."""
    for event in _done(audit):
        at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
        about = event["objectRef"]
        if event["verb"] == "delete":
            was = event["responseObject"]
            spec = was["spec"]
            yield Forced(at, about["resource"], str(spec["nodeName"]), about["name"], str(was["metadata"]["uid"]))
        elif about["resource"] == "nodes":
            taints = event["requestObject"].get("spec", {}).get("taints") or ()
            if any(one["key"] == OUT_OF_SERVICE for one in taints):
                yield Forced(at, "taint", about["name"], about["name"], "")


def evicted(audit: Path) -> list[str]:
    """Return the names of the pods in an audit log that were evicted, which happens without proof."""
    return [str(one["objectRef"]["name"]) for one in _done(audit) if one["objectRef"].get("subresource") == "eviction"]


def _done(audit: Path) -> Iterator[dict[str, Any]]:
    lines = audit.read_text().splitlines() if audit.exists() else []
    for line in lines:
        event = msgspec.json.decode(line)
        if event["responseStatus"]["code"] < 300:
            yield event


def _changed(node: dict[str, Any]) -> float | None:
    """Return since when the node is ready, or is not, as the cluster has it."""
    conditions = [one for one in node["status"].get("conditions", ()) if one["type"] == "Ready"]
    return datetime.fromisoformat(conditions[0]["lastTransitionTime"]).timestamp() if conditions else None


def _ready(node: dict[str, Any]) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
