"""``watched``: what ``ferroscope failover`` needs beside a large cluster in which nothing happens.

Once all nodes are ready, and once one has been dead for some minutes, and paused, as it may be for a week.

A real API server with the Nodes, Leases and Pods of a large cluster, without the rest of it. The Leases are renewed as
kubelets do, every ten seconds, and the status of a Node every five minutes. The Nodes have as many images and as much
status as real ones: about 15 kB each. Each machine has a BMC that speaks Redfish over TLS; an earlier leader has found
them well. What the process receives is read from its sockets, as it was on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import click
import msgspec
import requests

from bench.cycle import scratch
from bench.report import Report
from bench.usage import cpu_seconds, memory
from ferroscope.contrib.kubernetes.failover.cluster import PAUSED
from ferroscope.contrib.kubernetes.failover.controller import SETTLED_SECONDS
from ferroscope.core.failover_node import FailoverNode
from ferroscope.core.model import Node
from ferroscope.db import Transaction
from ferroscope.hardware import machine_identity
from tests.nightly.kubernetes.fleet import NAME, Fleet
from tests.support.processes import free_port
from tests.support.redfish import PASSWORD, USER, self_signed

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_PODS: Final = "/api/v1/namespaces/default/pods"
_RENEWAL: Final = 10.0
_MERGE: Final = "application/merge-patch+json"
_THREADS: Final = 8
_SYSTEMS: Final = "/redfish/v1/Systems"
_SESSIONS: Final = "/redfish/v1/SessionService/Sessions"


class Watched(msgspec.Struct, frozen=True):
    """MiB, CPU seconds per second, and kB per second that the process has received, with so many dead nodes."""

    dead: int
    rss: float
    peak: float
    cpu: float
    received: float
    renewals: int


def measure(directory: Path, *, nodes: int, pods: int, seconds: float) -> list[Watched]:
    """Return what the leader needs over ``seconds``, without a dead node and with one, once it has settled."""
    place = directory / "fleet"
    with (
        _Bmcs(nodes, directory) as bmcs,
        _LargeFleet(place, nodes=0, controllers=0, options={}, lease="default") as fleet,
    ):
        fleet.bmcs = bmcs
        with ThreadPoolExecutor(_THREADS) as pool:
            calls = _Calls(fleet)
            list(pool.map(calls.add_node, range(nodes)))
            list(pool.map(lambda number: calls.add_pod(number, number % nodes), range(pods)))
        with _renewing(calls, nodes):
            leader = fleet.add_controller()
            fleet.a_leader()
            found = []
            for dead in (0, 1):
                if dead:
                    calls.kill(0)
                time.sleep(30 + dead * SETTLED_SECONDS)
                if len(fleet.records()) != dead:
                    raise RuntimeError(f"{dead} nodes have failed, but there are {len(fleet.records())} remediations")
                found.append(_watch(leader.pid, calls, dead, seconds))
            fleet.check_bmcs()
            return found


class _Bmcs:
    """``with _Bmcs(nodes, directory) as bmcs``: the BMCs of as many machines, which are on, each at its own address."""

    def __init__(self, nodes: int, directory: Path) -> None:
        self._hosts = [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(nodes)]
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(*self_signed(directory))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="BMCs", daemon=True)
        self.asked: set[str] = set()
        self.urls: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        opening = asyncio.start_server(self._serve, self._hosts, free_port(), ssl=self._tls)
        self._server = asyncio.run_coroutine_threadsafe(opening, self._loop).result(30)
        self.urls = sorted("https://{}:{}".format(*one.getsockname()) for one in self._server.sockets)
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until the client ends it."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                if length := re.search(r"\ncontent-length: *(\d+)", head):
                    await reader.readexactly(int(length[1]))
                method, path = head.split()[:2]
                answer = msgspec.json.encode(self._answer(path))
                more = f"X-Auth-Token: token\r\nLocation: {_SESSIONS}/1\r\n" if method == "post" else ""
                status = "201 Created" if method == "post" else "200 OK"
                kind = "Content-Type: application/json\r\n"
                writer.write(
                    f"HTTP/1.1 {status}\r\n{kind}{more}Content-Length: {len(answer)}\r\n\r\n".encode() + answer
                )
                await writer.drain()
                if "\nconnection: close" in head:
                    return

    def _answer(self, path: str) -> dict[str, Any]:
        if path.startswith(f"{_SYSTEMS}/".lower()):
            ident = path.rstrip("/").rpartition("/")[2]
            self.asked.add(ident)
            return {
                "@odata.id": path, "Id": ident, "Name": "System", "UUID": ident, "SerialNumber": ident,
                "PowerState": "On", "BootProgress": {"LastState": "OSRunning"}, "Boot": {},
            }  # fmt: skip
        links = {"Systems": {"@odata.id": _SYSTEMS}, "Links": {"Sessions": {"@odata.id": _SESSIONS}}}
        return {"Id": "Root", "Name": "Root", "RedfishVersion": "1.6.0"} | links


class _LargeFleet(Fleet):
    """Machines with Redfish, and a controller with the intervals that it has without options."""

    bmcs: _Bmcs

    def configure(self, options: dict[str, str], *, name: str = "failover.conf") -> Path:
        path = super().configure(options, name=name)
        text = path.read_text().replace("enabled = sim", "enabled = redfish\nbmc_networks = 127.0.0.0/8")
        path.write_text(re.sub(r"\[worker\]\n.*\n", "", text))
        return path

    def check_bmcs(self) -> None:
        """Raise ``RuntimeError`` unless BMCs were asked, and all that answered count as well."""
        problems = [
            one.message
            for one in self.backend.store.read(lambda tx: tx.failover_nodes.list(NAME))
            if one.ready and one.problem
        ]
        if problems or not self.bmcs.asked:
            raise RuntimeError(f"{len(self.bmcs.asked)} BMCs were asked; problems: {problems[:3]}")

    def add_machine(self, number: int, system_uuid: str) -> None:
        """Let Ferroscope know the machine of a node, as after an inspection and a check by an earlier leader."""
        name, url = _name(number), self.bmcs.urls[number]
        access = {"redfish_username": USER, "redfish_password": PASSWORD, "redfish_verify_ca": False}
        node = Node(
            uuid=system_uuid,
            name=f"machine-of-{name}",
            driver="redfish",
            driver_info={"redfish_address": url, "redfish_system_id": f"{_SYSTEMS}/{system_uuid}"} | access,
            internal={machine_identity.IDENTITY: {"serial": None, "uuid": system_uuid, "macs": []}},
        )
        checked = FailoverNode(cluster=NAME, node=name, machine=node.uuid, facts=("system UUID",), power="power on")

        def add(tx: Transaction) -> None:
            tx.nodes.add(node)
            tx.failover_nodes.save([checked])

        self.backend.store.write(add)


def _watch(pid: int, calls: _Calls, dead: int, seconds: float) -> Watched:
    began, used, count, received = time.monotonic(), cpu_seconds(pid), calls.renewals, 0
    sockets = _received(pid)
    while time.monotonic() - began < seconds:
        time.sleep(0.5)
        now = _received(pid)
        received += sum(octets - sockets.get(socket, 0) for socket, octets in now.items())
        sockets = now
    took = time.monotonic() - began
    held = memory(pid)
    cpu = (cpu_seconds(pid) - used) / took
    return Watched(dead, held.rss, held.peak, cpu, received / took / 1000, calls.renewals - count)


def _received(pid: int) -> dict[str, int]:
    """Return how many octets each TCP connection of the process has received, by its own port."""
    lines = subprocess.run(["ss", "-tinpHO"], capture_output=True, text=True, check=True).stdout.splitlines()
    mine = [line for line in lines if f"pid={pid}," in line]
    return {line.split()[3]: int(one[1]) for line in mine if (one := re.search(r"bytes_received:(\d+)", line))}


class _Calls:
    """The calls of kubelets; a connection for each thread."""

    def __init__(self, fleet: _LargeFleet) -> None:
        self._fleet = fleet
        self._local = threading.local()
        self.renewals = 0
        self.dead: set[int] = set()

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
        self._fleet.add_machine(number, ident)

    def add_pod(self, number: int, node: int) -> None:
        containers = [{"name": "main", "image": "example.invalid/main"}]
        spec = {"containers": containers, "nodeName": _name(node), "automountServiceAccountToken": False}
        self.call("POST", _PODS, {"metadata": {"name": f"pod-{number}", "labels": {"app": "load"}}, "spec": spec})

    def kill(self, number: int) -> None:
        """Let the node be dead, as the cluster marks it, and paused."""
        self.dead.add(number)
        paused = {"metadata": {"annotations": {PAUSED: "true"}}}
        self.call("PATCH", f"/api/v1/nodes/{_name(number)}", paused, kind=_MERGE)
        condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "stopped posting"}
        body = {"status": {"conditions": [condition]}}
        self.call("PATCH", f"/api/v1/nodes/{_name(number)}/status", body, kind=_MERGE)

    def renew(self, number: int) -> None:
        if number in self.dead:
            return
        if self.renewals % 30 == 0:
            body = {"status": {"conditions": _conditions()}}
            self.call("PATCH", f"/api/v1/nodes/{_name(number)}/status", body, kind=_MERGE)
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
    return {
        "conditions": _conditions(),
        "images": images,
        "nodeInfo": {
            "machineID": system_uuid, "systemUUID": system_uuid, "bootID": system_uuid, "kernelVersion": "6.1",
            "osImage": "Debian GNU/Linux 12", "containerRuntimeVersion": "containerd://1.6", "kubeletVersion": "v1.20",
            "kubeProxyVersion": "v1.20", "operatingSystem": "linux", "architecture": "amd64",
        },
    }  # fmt: skip


def _conditions() -> list[dict[str, str]]:
    kinds = {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    message = "kubelet is posting ready status"
    return [
        {"type": kind, "status": status, "reason": "KubeletReady", "message": message, "lastHeartbeatTime": _now()}
        for kind, status in kinds.items()
    ]


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
        ways = measure(place, nodes=nodes, pods=pods, seconds=seconds)
    rows = [(one.dead, one.rss, one.peak, one.cpu * 100, one.received, one.renewals / seconds) for one in ways]
    report.table(("dead", "RSS MiB", "peak MiB", "CPU, % of a core", "received kB/s", "renewals/s"), rows)
    report.keep("watched", ways)
    one = ways[-1]
    report.figure("failover: RSS beside 1,000 nodes, MB", "sqlite", one.peak, most=150)
    report.figure("failover: CPU beside 1,000 nodes, one dead, % of a core", "sqlite", one.cpu * 100, most=1)
    report.figure("failover: received beside 1,000 nodes, one dead, kB/s", "sqlite", one.received, most=50)
