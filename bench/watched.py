"""``watched``: memory and CPU time of ``ferroscope failover`` beside a large cluster in which nothing fails.

A real API server with the Nodes, Leases and Pods of a large cluster, without the rest of it. The Leases are renewed as
kubelets do, every ten seconds, and the Nodes have as many images and as much status as real ones: about 15 kB each.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import requests

from bench.cycle import scratch
from bench.figures import Figure
from bench.report import Report
from bench.usage import cpu_seconds, memory
from tests.nightly.kubernetes.fleet import Fleet

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_PODS: Final = "/api/v1/namespaces/default/pods"
_RENEWAL: Final = 10.0
_MERGE: Final = "application/merge-patch+json"
_THREADS: Final = 8


class Watched(msgspec.Struct, frozen=True):
    """MiB, and CPU seconds per second."""

    nodes: int
    pods: int
    rss: float
    peak: float
    cpu: float
    renewals: int


def measure(directory: Path, *, nodes: int, pods: int, seconds: float) -> Watched:
    """Return what the leader needs, over ``seconds`` after its first passes."""
    with Fleet(directory / "fleet", nodes=0, controllers=0, options={}, lease="default") as fleet:
        with ThreadPoolExecutor(_THREADS) as pool:
            calls = _Calls(fleet)
            list(pool.map(calls.add_node, range(nodes)))
            list(pool.map(lambda number: calls.add_pod(number, number % nodes), range(pods)))
        with _renewing(calls, nodes):
            leader = fleet.add_controller()
            fleet.a_leader()
            time.sleep(30)
            began, used, count = time.monotonic(), cpu_seconds(leader.pid), calls.renewals
            time.sleep(seconds)
            cpu = (cpu_seconds(leader.pid) - used) / (time.monotonic() - began)
            held = memory(leader.pid)
            if fleet.records():
                raise RuntimeError(f"nothing failed, but there are remediations: {fleet.records()[0].message}")
            return Watched(nodes, pods, held.rss, held.peak, cpu, calls.renewals - count)


class _Calls:
    """The calls of kubelets; a connection for each thread."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._local = threading.local()
        self.renewals = 0

    def call(self, method: str, path: str, body: Any, *, kind: str = "application/json") -> Any:
        if not hasattr(self._local, "session"):
            self._local.session = requests.Session()
            self._local.session.trust_env = False
        cluster = self._fleet.cluster
        answer = self._local.session.request(
            method, cluster.url + path, data=msgspec.json.encode(body), verify=str(cluster.ca), timeout=30,
            headers={"Content-Type": kind, "Authorization": f"Bearer {cluster.token}"},
        )  # fmt: skip
        answer.raise_for_status()

    def add_node(self, number: int) -> None:
        name, ident = _name(number), f"5c0be000-0000-4000-8000-{number:012x}"
        self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        self.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": _status(ident)}, kind=_MERGE)
        lease = {"metadata": {"name": name}, "spec": {"holderIdentity": name, "renewTime": _now()}}
        self.call("POST", _LEASES, lease)
        self._fleet.enroll(name, ident)

    def add_pod(self, number: int, node: int) -> None:
        containers = [{"name": "main", "image": "example.invalid/main"}]
        spec = {"containers": containers, "nodeName": _name(node), "automountServiceAccountToken": False}
        self.call("POST", _PODS, {"metadata": {"name": f"pod-{number}", "labels": {"app": "load"}}, "spec": spec})

    def renew(self, number: int) -> None:
        self.call("PATCH", f"{_LEASES}/{_name(number)}", {"spec": {"renewTime": _now()}}, kind=_MERGE)
        self.renewals += 1


@contextmanager
def _renewing(calls: _Calls, nodes: int) -> Iterator[None]:
    """Renew all Leases every ten seconds, evenly spread."""
    over = threading.Event()

    def renew(first: int) -> None:
        mine = range(first, nodes, _THREADS)
        while not over.is_set():
            for number in mine:
                began = time.monotonic()
                calls.renew(number)
                over.wait(max(0.0, _RENEWAL / len(mine) - (time.monotonic() - began)))

    threads = [threading.Thread(target=renew, args=(first,)) for first in range(min(_THREADS, nodes))]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def _name(number: int) -> str:
    return f"node-{number:04d}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _status(system_uuid: str) -> dict[str, Any]:
    """Return the status of a ready node, with the 50 images that a kubelet reports at most."""
    images = [
        {"names": [f"registry.example/{'x' * 60}@sha256:{number:064x}", f"registry.example/{'x' * 60}:v1.{number}"]}
        for number in range(50)
    ]
    kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    conditions = [
        {"type": kind, "status": status, "reason": "KubeletReady", "message": "kubelet is posting ready status"}
        for kind, status in kinds.items()
    ]
    return {
        "conditions": conditions,
        "images": images,
        "nodeInfo": {
            "machineID": system_uuid, "systemUUID": system_uuid, "bootID": system_uuid, "kernelVersion": "6.1",
            "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://1.6", "kubeletVersion": "v1.20",
            "kubeProxyVersion": "v1.20", "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip


@click.command("watched")
@click.pass_obj
@click.option("--nodes", default=1000, show_default=True)
@click.option("--pods", default=20_000, show_default=True)
@click.option("--seconds", default=120.0, show_default=True)
def command(found: tuple[Report, Path], nodes: int, pods: int, seconds: float) -> None:
    """What the failed-node controller needs beside a large cluster."""
    report, directory = found
    report.section(f"watched: ferroscope failover beside {nodes} nodes and {pods} pods")
    with scratch(directory) as place:
        one = measure(place, nodes=nodes, pods=pods, seconds=seconds)
    row = (f"{one.rss:.0f}", f"{one.peak:.0f}", f"{one.cpu * 100:.1f}", f"{one.renewals / seconds:.0f}")
    report.table(("RSS MiB", "peak MiB", "CPU, % of a core", "renewals/s"), [row])
    report.keep("watched", one)
    report.found(Figure("failover: RSS beside 1,000 nodes, MB", "sqlite", one.peak))
    report.found(Figure("failover: CPU beside 1,000 nodes, % of a core", "sqlite", one.cpu * 100))
