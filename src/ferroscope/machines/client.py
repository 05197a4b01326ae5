"""The calls of the controller of Machines to the Kubernetes API, and the rights that they need."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from ferroscope.config.integration_options import MachinesSettings
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
