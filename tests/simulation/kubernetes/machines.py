"""The machines: power, boots, containers that run, and the kubelet that says so; what is true is known here only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tests.simulation.kubernetes.objects import Document, has_taint, key_of, ready, terminating

if TYPE_CHECKING:
    from tests.simulation.kubernetes.cluster import Cluster

# Kubernetes' defaults, in seconds.
RENEW: Final = 10.0
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_SYNC: Final = 1.0


class Container(msgspec.Struct, frozen=True):
    """What runs of a pod. ``identity``: of a StatefulSet's pod, which must not run twice."""

    pod: str
    uid: str
    identity: str
    volume: str


class Bmc(msgspec.Struct):
    """``silent`` and ``unknown`` as it answers; ``lies``: so many answers more are wrong; ``deaf``: it obeys nothing.

    ``slow``: so many seconds more does an answer take. ``tells``: during a change it says so; others go on to say what
    was before. ``changing``: so many commands are about to take effect. ``refuses``: so many power-offs more.
    ``stuck_off``: it says that the machine is off, whatever is true. ``redfish``: it says which machine it is that of.
    """

    silent: bool = False
    unknown: bool = False
    deaf: bool = False
    lies: int = 0
    slow: float = 0.0
    tells: bool = False
    changing: int = 0
    refuses: int = 0
    stuck_off: bool = False
    redfish: bool = True

    def mend(self) -> None:
        """Let it answer and obey as it should."""
        self.silent = self.unknown = self.deaf = self.stuck_off = False
        self.lies, self.refuses, self.slow = 0, 0, 0.0


class Machine:
    """One machine. ``node`` is the name under which its kubelet joins, "" for a spare one.

    ``crossed``: the command that has switched it off was sent when it was off, or its BMC said so: nobody knows of it.
    ``inspected``: the product knows its serial number and UUID; of others it knows what operators say of them.
    ``cut``: it cannot reach the API server; ``hung``: its kubelet does nothing; ``broken``: it does not boot.
    ``lives``: its kubelet hangs so many seconds after each boot, 0: it does not. ``settles``: for so many it says
    after a boot that its node is not ready. ``cut_off_at``: when we have switched it off. ``reported_uuid``: what its
    firmware says, which may be a placeholder.
    """

    def __init__(self, cluster: Cluster, number: int, node: str) -> None:
        self.cluster = cluster
        self.number = number
        self.name = f"machine-{number}"
        self.uuid = f"00000000-0000-4000-8000-{number:012d}"
        self.system_uuid = f"4c4c4544-0051-4b10-8057-{number:012d}"
        self.reported_uuid = self.system_uuid
        self.serial = f"SN{number:04d}"
        self.node = node
        self.rng = cluster.kernel.rng(f"machine {number}")
        self.bmc = Bmc(tells=self.rng.random() < 0.5)
        self.on = True
        self.booted = True
        self.inspected = True
        self.cut = self.hung = self.broken = self.unwell = False
        self.switched_off_by_us = False
        self.crossed = False
        self.lives = self.settles = 0.0
        self.cut_off_at: list[float] = []
        self.off_since = 0.0
        self.on_since = self.lied_at = -1e9
        self.boots = 1
        self.containers: dict[str, Container] = {}
        self._power_changes = 0
        self._seen_versions = (-1, -1)
        self._started = False
        self._reported_boot = 0

    @property
    def boot_id(self) -> str:
        return f"boot-{self.number}-{self.boots}"

    @property
    def works(self) -> bool:
        """Whether its kubelet works and reaches the API server."""
        up = self.on and self.booted and not self.hung and not self.cut
        return up and bool(self.node) and self.cluster.api_up

    def say(self, what: str) -> None:
        self.cluster.kernel.say(what, f"{self.name} ({self.node or 'spare'})")

    # Power.

    def power(self, *, on: bool, why: str) -> None:
        """Switch it; a machine that is switched on boots some time later, if it can."""
        if on is self.on:
            return
        self.on = on
        self._power_changes += 1
        self.say(f"is now {'on' if on else 'off'}: {why}")
        if on:
            self.switched_off_by_us = self.crossed = False
            self.on_since = self.cluster.kernel.now
            self.cluster.kernel.at(self.rng.uniform(25.0, 60.0), self._boot, self._power_changes)
        else:
            self.off_since = self.cluster.kernel.now
            self._stop()

    def crash(self) -> None:
        """Its kernel panics: it stays on, and boots again if it can."""
        if self.on:
            self.say("crashes")
            self._stop()
            self._power_changes += 1
            self.cluster.kernel.at(self.rng.uniform(25.0, 60.0), self._boot, self._power_changes)

    def boot_again(self) -> None:
        """It was mended: it boots, if it is on."""
        if self.on and not self.booted:
            self._power_changes += 1
            self.cluster.kernel.at(self.rng.uniform(25.0, 60.0), self._boot, self._power_changes)

    def _stop(self) -> None:
        self.booted = False
        self.containers.clear()

    def _boot(self, change: int) -> None:
        if change != self._power_changes or self.broken or self.booted:
            return
        self.boots += 1
        self.booted = True
        self.hung, self.unwell = False, self.settles > 0
        if self.settles:
            self.cluster.kernel.at(self.settles, self._settle, change)
        self._seen_versions = (-1, -1)
        self.say(f"has booted, as {self.boot_id}")
        self._report(registers=True)
        if self.lives:
            self.cluster.kernel.at(self.lives, self._hang, self._power_changes)

    def _hang(self, change: int) -> None:
        if self.lives and change == self._power_changes:
            self.say("its kubelet hangs again")
            self.hung = True

    def _settle(self, change: int) -> None:
        if change == self._power_changes:
            self.unwell = False
            self._report(registers=False)

    # The kubelet.

    def start(self) -> None:
        """Let its kubelet do its periodic work; each has its own phase."""
        if self._started:
            return
        self._started = True
        self.cluster.kernel.at(self.rng.uniform(0.0, RENEW), self._renew)
        self.cluster.kernel.at(self.rng.uniform(0.0, _SYNC), self._sync)
        self._report(registers=True)

    def restart_kubelet(self) -> None:
        """Somebody restarts it: it registers its node again if that was deleted, once it reaches the API server."""
        self._reported_boot = 0

    def _renew(self) -> None:
        self.cluster.kernel.at(RENEW * self.rng.uniform(0.98, 1.02), self._renew)
        self._report(registers=False)

    def _report(self, *, registers: bool) -> None:
        """Renew the lease, and report the state of the node; a kubelet registers when it starts, and only then."""
        cluster = self.cluster
        if not self.works:
            return
        node = cluster.objects.get("nodes", self.node)
        if node is None:
            if not registers:
                return
            node = cluster.new_node(self)
        self._reported_boot = self.boots
        now = cluster.kernel.now
        cluster.renewed[self.node] = now
        renewal = {"holderIdentity": self.node, "renewTime": f"2026-11-26T00:00:00.{now:010.3f}"}
        lease = cluster.objects.get("leases", self.node) or {"metadata": {"name": self.node}}
        lease["spec"] = renewal
        cluster.objects.put("leases", lease)
        info = {"bootID": self.boot_id, "systemUUID": self.reported_uuid}
        status = "False" if self.unwell else "True"
        if ready(node) != status or node["status"]["nodeInfo"] != info:
            node["status"]["nodeInfo"] = info
            reason = "KubeletNotReady" if self.unwell else "KubeletReady"
            cluster.set_condition(node, {"type": "Ready", "status": status, "reason": reason})

    def _sync(self) -> None:
        """Start and stop what the API server says."""
        objects = self.cluster.objects
        self.cluster.kernel.at(_SYNC, self._sync)
        versions = objects.versions["pods"], objects.versions["attachments"]
        if not self.works:
            return
        if self._reported_boot != self.boots:  # it says who it is before it starts anything
            self._report(registers=True)
        if versions == self._seen_versions:
            return
        self._seen_versions = versions
        mine = {one["metadata"]["uid"]: one for one in objects.all("pods") if one["spec"].get("nodeName") == self.node}
        for uid in [uid for uid in self.containers if uid not in mine or terminating(mine[uid])]:
            del self.containers[uid]
        for uid, pod in mine.items():
            if terminating(pod):
                self._finish(pod)
            elif uid not in self.containers and self._attached(pod):
                self.cluster.start_container(self, pod)

    def _finish(self, pod: Document) -> None:
        """Its containers have ended: the kubelet lets the API server forget it."""
        self.cluster.objects.delete("pods", key_of(pod["metadata"]), {})

    def _attached(self, pod: Document) -> bool:
        volume = self.cluster.attachable(pod)
        return not volume or any(
            one["spec"]["nodeName"] == self.node and not terminating(one) for one in self.cluster.attachments_of(volume)
        )

    def is_tolerated_by(self, pod: Document) -> bool:
        """Whether the scheduler may bind the pod to its node."""
        node = self.cluster.objects.get("nodes", self.node)
        if node is None or ready(node) != "True" or node["spec"].get("unschedulable"):
            return False
        if any(one["effect"] != "PreferNoSchedule" and one["key"] != "control-plane" for one in node["spec"]["taints"]):
            return False
        if has_taint(node, "control-plane") and not pod["spec"].get("tolerations"):
            return False
        selector = pod["spec"].get("nodeSelector") or {}
        hostname = self.cluster.host_of_volume(pod)
        labels = node["metadata"]["labels"]
        if hostname and hostname != labels["kubernetes.io/hostname"]:
            return False
        return all(labels.get(name) == value for name, value in selector.items())
