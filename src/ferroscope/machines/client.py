"""The calls of the controller of Machines to the Kubernetes API, and the rights that they need."""

from __future__ import annotations

import base64
import binascii
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import structlog

from ferroscope.config.integration_options import MachinesSettings
from ferroscope.contracts.queue import StopFlag
from ferroscope.machines.objects import API_VERSION, GROUP, KIND, PLURAL, HardwareData, Machine, Secret
from ferroscope.remote.kubernetes import KubernetesClient, KubernetesError, Right

METAL3: Final = "metal3.io"
_HARDWARE_DATA: Final = "hardwaredata"
_JSON_PATCH: Final = "application/json-patch+json"

# All rights of the controller, each with the verbs that it uses; manifests grant these and no others.
_ALWAYS: Final = (
    ("list", GROUP, PLURAL),
    ("watch", GROUP, PLURAL),
    ("patch", GROUP, PLURAL),
    ("patch", GROUP, f"{PLURAL}/status"),
    ("get", "", "secrets"),
    ("create", "", "events"),
)
_OBSERVING: Final = (("create", GROUP, PLURAL), ("delete", GROUP, PLURAL))
_HARDWARE: Final = tuple((verb, METAL3, _HARDWARE_DATA) for verb in ("get", "create", "patch"))


def rights(settings: MachinesSettings) -> list[Right]:
    """Return all rights that the controller needs: in each of its namespaces, or in all of them."""
    everywhere = _ALWAYS + (_HARDWARE if settings.hardware_data else ())
    found = [Right(*one, namespace) for namespace in settings.namespaces or ("",) for one in everywhere]
    if settings.observe_namespace:
        found += [Right(*one, settings.observe_namespace) for one in _OBSERVING]
    return found


class MachineClient(KubernetesClient):
    """Machines and what belongs to them. ``writes`` counts the calls that change something."""

    def __init__(self, http: Any, *, timeout: float) -> None:
        super().__init__(http, timeout=timeout)
        self.writes = 0

    def machines(self, namespace: str) -> tuple[list[Machine], str]:
        """Return the Machines of a namespace, "": of all, and the version of this list."""
        return self._list(Machine, _collection(namespace))

    def watch_machines(self, namespace: str, version: str) -> Iterator[tuple[str, Machine]]:
        """Yield the changes since ``version``; see ``_watch``."""
        return self._watch(Machine, _collection(namespace), version)

    def is_served(self, group: str, kinds: str) -> bool:
        """Whether the API server knows this custom resource."""
        try:
            found = self._decoded(dict[str, Any], self._call("GET", f"/apis/{group}/v1alpha1"))
        except KubernetesError as exc:
            if exc.status == 404:
                return False
            raise
        return any(one.get("name") == kinds for one in found.get("resources", ()))

    def set_finalizers(self, machine: Machine, finalizers: list[str]) -> Machine:
        """Replace the finalizers if the object is as it was read; ``KubernetesError``, ``conflict``."""
        return self._patch(machine, "", [_add("/metadata/finalizers", finalizers)])

    def remove_annotation(self, machine: Machine, name: str) -> Machine:
        """Remove an annotation, likewise."""
        escaped = name.replace("~", "~0").replace("/", "~1")
        return self._patch(machine, "", [{"op": "remove", "path": f"/metadata/annotations/{escaped}"}])

    def set_status(self, machine: Machine, status: Mapping[str, Any]) -> Machine:
        """Replace the status, likewise."""
        return self._patch(machine, "/status", [_add("/status", dict(status))])

    def _patch(self, machine: Machine, part: str, operations: Sequence[Mapping[str, Any]]) -> Machine:
        meta = machine.metadata
        path = f"{_collection(meta.namespace)}/{quote(meta.name)}{part}"
        self.writes += 1
        body = _if_as_read(meta.resource_version, operations)
        found: Machine = self._decoded(Machine, self._call("PATCH", path, body, kind=_JSON_PATCH))
        return found

    def create(self, namespace: str, name: str, labels: Mapping[str, str], spec: Mapping[str, Any]) -> None:
        """Create a Machine; ``KubernetesError``, ``conflict`` if its name is taken."""
        body = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "labels": dict(labels)},
            "spec": dict(spec),
        }
        self.writes += 1
        self._call("POST", _collection(namespace), body)

    def delete(self, machine: Machine) -> None:
        """Delete a Machine if it is as it was read."""
        meta = machine.metadata
        self.writes += 1
        path = f"{_collection(meta.namespace)}/{quote(meta.name)}"
        self._delete(path, meta.uid, meta.resource_version)

    def secret(self, namespace: str, name: str) -> tuple[dict[str, bytes], str] | None:
        """Return the data and the version of a Secret; None if it does not exist. A value that is not base64: b""."""
        found = self._one(Secret, f"/api/v1/namespaces/{quote(namespace)}/secrets/{quote(name, safe='')}")
        return None if found is None else (_decoded(found.data), found.metadata.resource_version)

    def tell(self, machine: Machine, reason: str, message: str, *, warning: bool) -> None:
        """Add an Event about the Machine."""
        meta = machine.metadata
        about = {
            "apiVersion": API_VERSION, "kind": KIND, "name": meta.name, "namespace": meta.namespace, "uid": meta.uid,
            "resourceVersion": meta.resource_version,
        }  # fmt: skip
        self.writes += 1
        component = "ferroscope-machines"
        self._record(about, reason, message, warning=warning, component=component, namespace=meta.namespace)

    def save_hardware(self, machine: Machine, spec: Mapping[str, Any]) -> bool:
        """Write the HardwareData of the Machine; False if there is one of this name that is not ours."""
        meta = machine.metadata
        collection = f"/apis/{METAL3}/v1alpha1/namespaces/{quote(meta.namespace)}/{_HARDWARE_DATA}"
        path = f"{collection}/{quote(meta.name)}"
        there = self._one(HardwareData, path)
        owner = {"apiVersion": API_VERSION, "kind": KIND, "name": meta.name, "uid": meta.uid}
        about: dict[str, Any] = {"name": meta.name, "ownerReferences": [owner]}
        if there is None:
            self.writes += 1
            new = {"apiVersion": f"{METAL3}/v1alpha1", "kind": "HardwareData", "metadata": about, "spec": dict(spec)}
            self._call("POST", collection, new)
        elif meta.uid not in [one.uid for one in there.metadata.owner_references]:
            return False
        elif there.spec != spec:
            self.writes += 1
            body = _if_as_read(there.metadata.resource_version, [_add("/spec", spec)])
            self._call("PATCH", path, body, kind=_JSON_PATCH)
        return True


def _collection(namespace: str) -> str:
    where = f"/namespaces/{quote(namespace)}" if namespace else ""
    return f"/apis/{API_VERSION}{where}/{PLURAL}"


def _add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def _if_as_read(version: str, operations: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the JSON patch with these operations; 409 if the object has changed since ``version``."""
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *operations]


def _decoded(data: Mapping[str, str]) -> dict[str, bytes]:
    found = {}
    for name, value in data.items():
        try:
            found[name] = base64.b64decode(value)
        except (binascii.Error, ValueError):
            found[name] = b""
    return found


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
