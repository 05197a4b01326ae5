"""The Machines of one namespace, or of all, kept up to date in memory by list and watch.

The watch only tells early: after each watch of about a minute, all Machines are listed again if the last list is older
than ``resync``, so nothing depends on having seen a change. A version that is too old (410) is answered by a list.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from ferroscope.contracts.queue import StopFlag
from ferroscope.machines.client import MachineClient
from ferroscope.machines.objects import Machine
from ferroscope.remote.kubernetes import KubernetesError

_log = structlog.get_logger(__name__)

_PAUSE = 1.0  # seconds after a failure
_LONGEST_PAUSE = 30.0


class Machines:
    """What is known of all Machines, and the keys of those that have changed. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, Machine] = {}
        self._changed: dict[str, None] = {}
        self._listed: set[str] = set()

    def is_complete(self, namespaces: tuple[str, ...]) -> bool:
        """Whether the Machines of all these namespaces have been listed."""
        with self._lock:
            return self._listed.issuperset(namespaces)

    def replace(self, namespace: str, found: list[Machine]) -> None:
        """Take a list of all Machines of a namespace."""
        with self._lock:
            self._listed.add(namespace)
            old = {key: one for key, one in self._found.items() if namespace in ("", one.metadata.namespace)}
            new = {one.key: one for one in found}
            self._found = {key: one for key, one in self._found.items() if key not in old} | new
            for key in old.keys() | new.keys():
                if key not in old or key not in new or _version(old[key]) != _version(new[key]):
                    self._changed[key] = None

    def put(self, machine: Machine, *, ours: bool = False) -> None:
        """Take a newer version; ``ours``: we have just written it ourselves, which is no news."""
        with self._lock:
            known = self._found.get(machine.key)
            if known is not None and _version(known) == _version(machine):
                return
            self._found[machine.key] = machine
            if not ours:
                self._changed[machine.key] = None

    def drop(self, machine: Machine) -> None:
        """Take that it does not exist any more."""
        with self._lock:
            self._found.pop(machine.key, None)
            self._changed[machine.key] = None

    def get(self, key: str) -> Machine | None:
        with self._lock:
            return self._found.get(key)

    def every(self) -> list[Machine]:
        with self._lock:
            return list(self._found.values())

    def take_changed(self) -> list[str]:
        """Return the keys of the changed Machines, and forget that they have changed."""
        with self._lock:
            found = list(self._changed)
            self._changed = {}
            return found


def _version(machine: Machine) -> str:
    return machine.metadata.resource_version


class MachineWatch:
    """A thread that keeps ``machines`` up to date until ``stop``."""

    def __init__(
        self,
        kube: MachineClient,
        namespace: str,
        machines: Machines,
        stop: StopFlag,
        *,
        resync: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._machines = machines
        self._stop = stop
        self._resync = resync
        self._monotonic = monotonic
        self.problem = ""
        self.lists = 0

    def start(self) -> None:
        threading.Thread(target=self.run, name=f"watch machines {self._namespace}".rstrip(), daemon=True).start()

    def run(self) -> None:
        version, listed_at, pause = "", 0.0, _PAUSE
        while not self._stop.is_set():
            try:
                if not version or self._monotonic() - listed_at >= self._resync:
                    found, version = self._kube.machines(self._namespace)
                    self._machines.replace(self._namespace, found)
                    listed_at, self.lists = self._monotonic(), self.lists + 1
                self.problem, pause = "", _PAUSE
                version = self.follow(version)
            except KubernetesError as exc:
                version = ""
                if exc.gone:
                    continue
                self._tell(exc)
                self._stop.wait(max(pause, exc.retry_after))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def follow(self, version: str) -> str:
        """Take the changes of one watch; return the last version. ``KubernetesError``."""
        for kind, machine in self._kube.watch_machines(self._namespace, version):
            version = machine.metadata.resource_version or version
            if kind == "DELETED":
                self._machines.drop(machine)
            elif kind != "BOOKMARK":
                self._machines.put(machine)
            if self._stop.is_set():
                break
        return version

    def _tell(self, exc: KubernetesError) -> None:
        if self.problem != str(exc):
            _log.warning("cannot watch Machines", namespace=self._namespace or "all", error=str(exc), status=exc.status)
        self.problem = str(exc)
