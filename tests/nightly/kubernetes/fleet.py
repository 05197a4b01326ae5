"""A cluster on simulated machines with two failed-node controllers: what the tests, the chaos and the figures share.

The controllers are real processes with one database and the rights that the how-to page lists. The API server keeps an
audit log of what they change, which ``witness`` judges.
"""

from __future__ import annotations

import ipaddress
import json
import re
import sys
import textwrap
import threading
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from sqlalchemy import text

from ferroscope.config.load import load
from ferroscope.core.model import Node
from ferroscope.core.remediation import Remediation
from ferroscope.db.engine import build_engine
from ferroscope.hardware import machine_identity
from ferroscope.runtime.backend import open_backend
from ferroscope.runtime.system import SystemClock
from tests import ROOT
from tests.nightly.kubernetes.rack import Machine, Rack
from tests.support import databases
from tests.support.installation import Installation, Played
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_programs import Program
from tests.support.processes import until

NAME: Final = "tested"
ACCOUNT: Final = "ferroscope-failover"
_PAGE: Final = ROOT / "docs/how-to/fail-over-a-kubernetes-node.md"
_HOLDER: Final = text(
    "SELECT m.pid FROM leases l JOIN members m ON m.id = l.holder WHERE l.name = :name AND l.expires_at > :now"
)
_EPOCH: Final = text("SELECT epoch FROM leases WHERE name = :name")
# Nothing but what the controllers change, as it was asked and answered.
_AUDIT: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "RequestResponse",
            "users": [f"system:serviceaccount:default:{ACCOUNT}"],
            "verbs": ["create"],
            "resources": [{"group": "", "resources": ["pods/eviction"]}],
        },
        {
            "level": "RequestResponse",
            "users": [f"system:serviceaccount:default:{ACCOUNT}"],
            "verbs": ["delete", "patch", "update"],
            "resources": [
                {"group": "", "resources": ["pods", "nodes"]},
                {"group": "storage.k8s.io", "resources": ["volumeattachments"]},
            ],
        },
        {"level": "None"},
    ],
}
# Short times, so that tests wait less; ``silence`` has the least value that is allowed. ``proof_age``: a hollow kubelet
# runs less than a second after its machine was powered on. ``max_power_offs``: a node fails in many tests of an hour.
QUICK: Final = {
    "proof_age": "0.7", "dwell": "2", "dwell_reporting": "20", "silence": "11", "storm_cooldown": "4",
    "request_timeout": "2", "max_unhealthy": "50%", "max_power_offs": "1000",
}  # fmt: skip


def documented_rules() -> list[dict[str, Any]]:
    """Return the rules of the ClusterRole in the how-to page, and the one of mode ``label``."""
    page = _PAGE.read_text()
    (role,) = re.findall(r"```yaml\n(.*?)\n +```", page, re.DOTALL)
    (label,) = re.findall(r"`mode = label` also needs\s+`(\{.*?\})`", page, re.DOTALL)
    return [*yaml.safe_load(textwrap.dedent(role))["rules"], yaml.safe_load(label)]


class Fleet(Installation):
    """``nodes`` hollow nodes with machines and BMCs, and ``controllers`` processes; ``options``: of ``[failover]``.

    ``url`` leads to a database; without it there is one of SQLite, where a controller that is frozen while it
    writes stops the other one too.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int,
        controllers: int = 2,
        options: dict[str, str] | None = None,
        lease: str = "fast",
        seed: int = 0,
        url: str = "",
    ) -> None:
        super().__init__(directory)
        directory.mkdir(exist_ok=True)
        self.url = url or f"sqlite:///{directory}/ferroscope.db"
        self.audit = directory / "audit.log"
        policy = directory / "audit.yaml"
        policy.write_text(json.dumps(_AUDIT))
        flags = ("--audit-policy-file", str(policy), "--audit-log-path", str(self.audit))
        place = directory / "kubernetes"
        place.mkdir()
        self.cluster = Cluster(place, nodes=nodes, api_options=flags)
        self.controllers: list[Played] = []
        self._count = controllers
        self._options = QUICK if options is None else options
        self._lease = lease
        self._seed = seed

    def _start(self) -> None:
        cluster = self.cluster.__enter__()
        self.after(lambda: cluster.__exit__(None, None, None))
        self.rack = Rack(list(cluster.nodes.values()), seed=self._seed)
        self.rack.__enter__()
        self.after(lambda: self.rack.__exit__(None, None, None))
        token = cluster.account(ACCOUNT, documented_rules(), everywhere=True)
        self.kubeconfig = cluster.write_kubeconfig("failover.kubeconfig", token)
        databases.upgrade(self.url)
        self.config = self.configure(self._options)
        settings = load([str(self.config)])
        self.backend = open_backend(settings, clock=SystemClock(), stop=threading.Event(), listen=False)
        self.after(self.backend.close)
        self._engine = build_engine(settings.database)
        self.after(self._engine.dispose)
        for machine in self.machines.values():
            self.enroll(machine.name, machine.node.system_uuid)
        for _ in range(self._count):
            self.add_controller()

    @property
    def machines(self) -> dict[str, Machine]:
        return self.rack.machines

    def configure(self, options: dict[str, str], *, name: str = "failover.conf") -> Path:
        """Write a configuration; ``options`` are all of ``[failover]`` but the cluster's name and kubeconfig."""
        own = "".join(f"{key} = {value}\n" for key, value in options.items())
        path = self.directory / name
        path.write_text(
            f"[database]\nconnection = {self.url}\n[drivers]\nenabled = sim\ncommand_timeout = 3\n"
            f"[lease]\nprofile = {self._lease}\n[worker]\nmember_ttl = 3\n"
            f"[failover]\ncluster = {NAME}\nkubeconfig = {self.kubeconfig}\napi_servers = {self.cluster.url}\n{own}"
        )
        return path

    def enroll(self, name: str, system_uuid: str) -> None:
        """Let Ferroscope know the machine of a node, as after an inspection, which has read its BMC's address."""
        ident = uuid.uuid5(uuid.NAMESPACE_DNS, name)
        bmc = str(ipaddress.IPv4Address((10 << 24) + ident.int % (1 << 24)))
        node = Node(
            uuid=str(ident),
            name=f"machine-of-{name}",
            driver="sim",
            driver_info={
                "sim_address": f"127.0.0.1:{self.rack.port}",
                "sim_node": name,
                "sim_bmc_address": bmc,
            },
            internal={machine_identity.IDENTITY: {"serial": None, "uuid": system_uuid, "macs": [], "bmcs": [bmc]}},
        )
        self.backend.store.write(lambda tx: tx.nodes.add(node))

    # The controllers.

    def add_controller(self, config: Path | None = None) -> Played:
        """Start one more; return when it is ready."""
        command = [sys.executable, "-m", "ferroscope", "failover", "-c", str(config or self.config)]
        one = self.play(f"controller-{len(self.controllers) + 1}", command)
        self.controllers.append(one)
        one.wait_ready()
        return one

    def leader(self) -> Played | None:
        """Return the process that leads now, None if none does."""
        now = self.backend.store.read(lambda tx: tx.now)
        with self._engine.connect() as connection:
            pids = connection.execute(_HOLDER, {"name": f"failover/{NAME}", "now": now}).scalars().all()
        return next((one for one in self.controllers if one.pid in pids and one.alive), None)

    def epoch(self) -> int:
        """Return the number of the leadership; each successor has a higher one."""
        with self._engine.connect() as connection:
            return int(connection.execute(_EPOCH, {"name": f"failover/{NAME}"}).scalar_one())

    def a_leader(self) -> Played:
        """Wait until one leads."""
        assert until(lambda: self.leader() is not None), [one.output()[-1000:] for one in self.controllers]
        found = self.leader()
        assert found is not None
        return found

    def records(self) -> Sequence[Remediation]:
        """Return the remediations, newest first."""
        return self.backend.store.read(lambda tx: tx.remediations.newest(NAME, 10_000))

    def active(self) -> Sequence[Remediation]:
        return self.backend.store.read(lambda tx: tx.remediations.active(NAME))

    def reason(self, node: str) -> str:
        """Return why no more is done about the node now; "" without a remediation in progress."""
        return next((one.reason for one in self.active() if one.node == node), "")

    # The cluster.

    def deploy(self, *names: str, kind: str = "StatefulSet", replicas: int = 1, **pod: Any) -> None:
        """Run these; ``pod``: more of the spec of their pods."""
        self.cluster.apply(*(workload(name, kind, replicas, **pod) for name in names))
        assert until(lambda: all(self.place(name) for name in names) or kind != "StatefulSet")

    def pod(self, name: str) -> dict[str, Any] | None:
        return next((one for one in self.cluster.pods() if one["metadata"]["name"] == name), None)

    def places(self, app: str) -> list[str]:
        """Return the nodes on which the pods of a workload run, as the cluster has it."""
        pods = [one for one in self.cluster.pods() if one["metadata"].get("labels", {}).get("app") == app]
        return [str(one["spec"]["nodeName"]) for one in pods if runs(one)]

    def place(self, statefulset: str) -> str:
        """Return the node on which the first pod of a StatefulSet runs, as the cluster has it; "" if none."""
        pod = self.pod(f"{statefulset}-0")
        return str(pod["spec"]["nodeName"]) if pod is not None and runs(pod) else ""

    def moved(self, statefulset: str, old: str) -> bool:
        """Whether its first pod runs on another node."""
        return self.place(statefulset) not in ("", old)

    def settle(self, *, seconds: float = 120.0) -> None:
        """End all faults, and wait until all nodes are ready and nothing is in progress."""
        processes: tuple[Program | Played, ...] = (self.cluster.api_server, *self.controllers)
        for one in processes:
            if one.alive:
                one.thaw()
            else:
                one.start()
        for machine in self.machines.values():
            machine.says, machine.obeys, machine.delay = "truth", True, 0.0
            machine.go_on()
            machine.node.heal()
            machine.boot()
            self.annotate(machine.name)
        assert until(self.settled, seconds=seconds), (
            {name: self.cluster.is_ready(name) for name in self.machines},
            [(one.node, one.phase, one.reason, one.message) for one in self.active()],
        )

    def settled(self) -> bool:
        """Whether all nodes are ready and no remediation is in progress."""
        return all(self.cluster.is_ready(name) for name in self.machines) and not self.active()

    def annotate(self, node: str, **annotations: str) -> None:
        """Give the node exactly these annotations of ours."""
        of = {f"ferroscope.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
        known = {f"ferroscope.io/{name}": None for name in ("failover-paused", "confirmed-off", "machine")}
        self.change(f"/api/v1/nodes/{node}", {"metadata": {"annotations": known | of}})

    def change(self, path: str, body: dict[str, Any]) -> None:
        """Merge this into an object."""
        self.cluster.call("PATCH", path, body, content="application/merge-patch+json")

    def cordon(self, node: str, *, cordoned: bool) -> None:
        """Let nothing be scheduled there, or no longer, as ``kubectl cordon`` and ``uncordon``."""
        self.change(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": cordoned or None}})


def runs(pod: dict[str, Any]) -> bool:
    """Whether the cluster has it as running, and not as being deleted."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def workload(name: str, kind: str, replicas: int, **pod: Any) -> dict[str, Any]:
    """Return a StatefulSet or a Deployment."""
    labels = {"app": name}
    spec: dict[str, Any] = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "main", "image": "example.invalid/main"}], **pod},
        },
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    about = {"name": name, "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": about, "spec": spec}


def prefers(node: str) -> dict[str, Any]:
    """Return the affinity of pods that run on this node, as long as they can."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    first = {"weight": 100, "preference": {"matchExpressions": [here]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [first]}}
