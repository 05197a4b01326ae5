"""Nodes that run containers: a real kubelet, with a containerd of its own, beside the control plane of the tests.

All of a node is in a process and a mount namespace, and in control groups of its own: killing it is a power loss, and
leaves nothing behind. Nodes of a rack share one network namespace, which stands for the network between them. A
container engine cannot pull anything here: ``load`` gives a node an image from a file.

There is no kube-proxy: a forwarder stands for it, for the one Service whose address pods use, that of the API server.
There is no DNS server, and nothing enforces network policies or Pod Security Standards (1.20 knows none).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from tests import ROOT
from tests.support.kubernetes import SERVICE, Cluster
from tests.support.kubernetes_programs import Program, programs
from tests.support.processes import PATIENCE, until
from tests.support.pxe.netns import Netns, bridge, need_root

GATEWAY: Final = "10.30.0.1"  # what is outside of the cluster, as pods see it: databases, BMCs
_PAUSE: Final = "localhost/pause:1"
_GROUPS: Final = Path("/sys/fs/cgroup")
# A kubelet sets these for its whole system; ours is shown files that have its values already.
_SETTINGS: Final = {
    "vm/overcommit_memory": 1, "vm/panic_on_oom": 0, "kernel/panic": 10, "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000, "kernel/keys/root_maxbytes": 25000000,
}  # fmt: skip
# The first process of a node. What both programs write to fixed places goes into the node's directory.
_START: Final = """\
directory=$1 group=$2; shift 2
for place in run var/lib var/log; do mount --bind "$directory/$place" "/$place"; done
for name in SETTINGS; do mount --bind "$directory/settings/$name" "/proc/sys/$name"; done
for one in /sys/fs/cgroup/*/; do
    [ ! -e "$one/$group/tasks" ] || echo 1 >"$one/$group/cgroup.procs"
done
containerd --config "$directory/containerd.toml" >>"$directory/containerd.log" 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
"$@" &
wait -n
""".replace("SETTINGS", " ".join(_SETTINGS))


class RealNode(Program):
    """One node; ``number`` is from 1 to 9."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        name = f"node-{number}"
        self._cluster = cluster
        self._number = number
        self._address = f"10.30.0.{10 + number}"
        self.disk = cluster.short_directory / name
        self._group = f"ferroscope-{os.getpid()}-{name}"
        super().__init__(name, cluster.directory, self._command_line, lambda: cluster.is_ready(name))

    def launch(self) -> None:
        """Switch it on; what was on its disk is there."""
        for place in ("run", "var/lib/kubelet", "var/log", "cni", "settings"):
            (self.disk / place).mkdir(parents=True, exist_ok=True)
        for name, value in _SETTINGS.items():
            (self.disk / "settings" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.disk / "settings" / name).write_text(f"{value}\n")
        (self.disk / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        (self.disk / "containerd.toml").write_text(_containerd(self.disk / "cni"))
        (self.disk / "cni/10-pods.conflist").write_text(_network(self._number))
        for hierarchy in _hierarchies():
            (hierarchy / self._group).mkdir(exist_ok=True)
            for inherited in ("cpuset.cpus", "cpuset.mems"):
                if (hierarchy / inherited).exists():
                    (hierarchy / self._group / inherited).write_text((hierarchy / inherited).read_text())
        super().launch()

    def kill(self) -> None:
        """All its processes die at this instant, those of containers, too."""
        super().kill()
        # One of the hierarchies is of version 2: the kubelet makes its groups there, too.
        for group in _GROUPS.glob(f"*/{self._group}"):
            until(partial(_removed, group))

    def run(self, *words: str) -> str:
        """Run a program on it, as its root; ``RuntimeError`` with what it says if it fails."""
        inside = ["nsenter", f"--target={self._first()}", "--mount", "--pid", "--", *words]
        done = subprocess.run(inside, capture_output=True, text=True, check=False, timeout=PATIENCE)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def load(self, archive: Path) -> str:
        """Import an image; the kubelet sees those of this namespace only."""
        return self.run("ctr", "--namespace", "k8s.io", "images", "import", str(archive))

    def wait_ready(self) -> None:
        super().wait_ready()
        self.load(_pause(self.disk / "pause.tar"))

    def _first(self) -> int:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0])

    def _command_line(self) -> list[str]:
        kubelet: dict[str, Any] = {
            "kubeconfig": self._cluster.kubeconfig, "hostname-override": self.name, "node-ip": self._address,
            "address": self._address, "healthz-port": 0, "cert-dir": self.disk,
            "container-runtime": "remote", "container-runtime-endpoint": "unix:///run/containerd/containerd.sock",
            "cgroup-root": f"/{self._group}", "resolv-conf": self.disk / "resolv.conf",
            "volume-plugin-dir": self.disk / "plugins", "fail-swap-on": "false",
            # The disk is that of whoever runs the tests, and an image that is collected cannot be pulled again.
            "eviction-hard": "memory.available<50Mi", "image-gc-high-threshold": 100,
        }  # fmt: skip
        return [
            "unshare", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc", "bash", "-euc", _START, "node",
            str(self.disk), self._group, str(programs() / "kubelet"),
            *(f"--{name}={value}" for name, value in kubelet.items()),
        ]  # fmt: skip


class Rack:
    """``with Rack(directory) as rack``: a control plane and real nodes, in a network of their own.

    Whoever enters it is in this network with what it starts from then on, and so is at the addresses of pods.
    """

    def __init__(self, directory: Path, *, nodes: int = 2) -> None:
        need_root()
        self._directory = directory
        self._count = nodes
        self._ends = ExitStack()
        self.nodes: dict[str, RealNode] = {}
        self.cluster: Cluster

    def __enter__(self) -> Self:
        with ExitStack() as failed:
            failed.callback(self._ends.close)
            self.network = Netns("rack")
            self._ends.callback(self.network.close)
            bridge(self.network, "rack")
            for address in (GATEWAY, *(f"10.30.0.{10 + number}" for number in range(1, self._count + 1))):
                self.network.ip("address", "add", f"{address}/24", "dev", "rack")
            self.network.ip("address", "add", f"{SERVICE}/32", "dev", "lo")
            self._ends.enter_context(self.network.entered())
            options = ("--kubelet-preferred-address-types", "InternalIP")
            self.cluster = self._ends.enter_context(Cluster(self._directory, api_options=options, tokens=True))
            self._forward()
            for number in range(1, self._count + 1):
                node = RealNode(self.cluster, number)
                self.nodes[node.name] = node
                self._ends.callback(node.kill)
                node.launch()
            for node in self.nodes.values():
                node.wait_ready()
            self.cluster.scheduler.start()
            self.cluster.controllers.start()
            if not until(self._untainted):
                raise RuntimeError(f"a node stays tainted: {self.cluster.kubectl('describe', 'nodes')}")
            failed.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._ends.close()

    def _untainted(self) -> bool:
        """Tell whether pods go to all nodes."""
        return not any(self.cluster.node(name)["spec"].get("taints") for name in self.nodes)

    def _forward(self) -> None:
        log = self._directory / "service.log"
        pair = [f"{SERVICE}:443", f"127.0.0.1:{self.cluster.port}"]
        command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.support.cluster.forward", *pair]
        forwarder = Program(
            "service", self._directory, lambda: command, lambda: log.exists() and "ready" in log.read_text()
        )
        self._ends.callback(forwarder.kill)
        forwarder.start()


def _hierarchies() -> list[Path]:
    """Return where the control groups of version 1 are, each once."""
    return [one for one in _GROUPS.iterdir() if (one / "tasks").exists() and not one.is_symlink()]


def _removed(group: Path) -> bool:
    """Remove a control group with those in it; False while processes still die in one of them."""
    try:
        for directory, _below, _files in list(os.walk(group, topdown=False)):
            Path(directory).rmdir()
    except OSError:
        return not group.exists()
    return True


def _containerd(cni: Path) -> str:
    return f"""\
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{_PAUSE}"
# Where root is not almighty, as in most containers, nothing is better protected from a lack of memory than this.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
"""


def _network(number: int) -> str:
    subnet = f"10.31.{number}.0/24"
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "bridge", "bridge": f"pods{number}", "isGateway": True, "ipam": ipam}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]})


def _pause(target: Path) -> Path:
    """Write the image in which a pod waits: Debian's catatonit, in the format of ``docker save``."""
    program = Path("/usr/bin/catatonit").read_bytes()
    layer = _tar({"catatonit": program})
    config = {
        "architecture": os.uname().machine.replace("x86_64", "amd64").replace("aarch64", "arm64"), "os": "linux",
        "config": {"Entrypoint": ["/catatonit", "-P"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{_digest(layer)}"]},
    }  # fmt: skip
    manifest = [{"Config": "config.json", "RepoTags": [_PAUSE], "Layers": ["layer.tar"]}]
    target.write_bytes(
        _tar(
            {
                "layer.tar": layer,
                "config.json": json.dumps(config).encode(),
                "manifest.json": json.dumps(manifest).encode(),
            }
        )
    )
    return target


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _tar(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o755
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()
