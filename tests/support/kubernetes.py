"""A private Kubernetes cluster: etcd, API server, controllers and scheduler, with hollow nodes, and faults for each.

All programs are real; a hollow node is a kubelet without containers. They listen on 127.0.0.1 only, and die with the
process that started them. RBAC is on: ``account`` gives tokens of service accounts with the rights of a test.

Kubernetes' own times are shortened (a node is given up after ``GRACE`` seconds of silence), because tests wait for
them. Killing a hollow node is a power loss; cutting it leaves its pods running, as ``running`` asks the node itself.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Self

import requests

from tests import ROOT
from tests.support.certificates import Authority
from tests.support.kubernetes_programs import Program, programs, release
from tests.support.processes import PATIENCE, free_port

GRACE: Final = 10  # seconds without a renewal after which a node is Unknown
SERVICE: Final = "10.96.0.1"  # the address of the API server for pods
_LEASE: Final = 4  # seconds; a kubelet renews a quarter of it
_CONTROLLERS: Final = (  # all but those that need a cloud, or keys that the cluster does not have
    "*,-bootstrapsigner,-tokencleaner,-csrsigning,-csrapproving,-csrcleaner,-nodeipam,-route,-service,-ttl,"
    "-root-ca-cert-publisher"
)
_CALL: Final = 10.0  # seconds for one request of a test


class HollowNode(Program):
    """A kubelet without containers, behind a link to the API server that can be cut."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        (cluster.directory / name).mkdir()
        self._port, self._read_only_port, link_port = free_port(), free_port(), free_port()
        self.system_uuid = str(uuid.uuid4())
        self.url = f"http://127.0.0.1:{self._port}"
        self._is_cut = False
        self._linking = threading.Lock()  # its BMC boots it while a test ends a partition: one link, not two
        self._kubeconfig = cluster.write_kubeconfig(f"{name}/kubeconfig", cluster.token, port=link_port)
        self.link = Program(f"{name}-link", cluster.directory, lambda: self._forward(link_port), self._forwards)
        super().__init__(name, cluster.directory, self._kubelet, lambda: cluster.is_ready(name))

    def launch(self) -> None:
        """Start it with a new boot ID, as after a power cycle, without waiting. A partition goes on."""
        self._link()
        super().launch()

    def began(self, since: float) -> float:
        """Return when its kubelet first started at or after ``since``, by its own log; infinity if it has not yet."""
        year = time.localtime(since or None).tm_year
        for line in self.log.read_text(errors="replace").splitlines():
            if line.endswith("] Started kubelet"):
                at = datetime.strptime(f"{year}{line[1:21]}", "%Y%m%d %H:%M:%S.%f").astimezone().timestamp()
                if at >= since:
                    return at
        return math.inf

    def cut(self) -> None:
        """Partition it from the API server: its pods go on."""
        with self._linking:
            self._is_cut = True
            self.link.kill()

    def heal(self) -> None:
        """End the partition."""
        self._is_cut = False
        self._link()

    def _link(self) -> None:
        with self._linking:
            if not self._is_cut and not self.link.alive:
                self.link.start()

    def running(self) -> set[str]:
        """Return the names of the pods that run here, asked of the kubelet itself; none while it is dead."""
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"{self.url}/runningpods/", timeout=_CALL)
            return {pod["metadata"]["name"] for pod in answer.json()["items"] or ()}
        return set()

    def _kubelet(self) -> list[str]:
        root = self._cluster.short_directory / self.name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        given = {
            "HOLLOW_ADDRESS": "127.0.0.1",
            "HOLLOW_DIRECTORY": root,
            "HOLLOW_RUNTIME_SOCKET": root / "runtime.sock",
            "HOLLOW_BOOT_ID": uuid.uuid4(),
            "HOLLOW_SYSTEM_UUID": self.system_uuid,
            "HOLLOW_LEASE_SECONDS": _LEASE,
            "TMPDIR": root,
        }
        ports = ["--kubelet-port", str(self._port), "--kubelet-read-only-port", str(self._read_only_port)]
        program = [str(programs() / "kubemark"), "--morph", "kubelet", "--name", self.name]
        return [
            "env", *(f"{name}={value}" for name, value in given.items()), *program, *ports,
            "--kubeconfig", str(self._kubeconfig),
        ]  # fmt: skip

    def _forward(self, port: int) -> list[str]:
        pair = [f"127.0.0.1:{port}", f"127.0.0.1:{self._cluster.port}"]
        return ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "tests.support.cluster.forward", *pair]

    def _forwards(self) -> bool:
        return self.link.log.exists() and "ready" in self.link.log.read_text()


class Cluster:
    """``with Cluster(directory, nodes=3) as cluster``: everything is ready, and ends with the block.

    ``kubeconfig`` is that of an administrator; ``call`` is one request with these rights. ``nodes`` are by name. A
    cluster without nodes has an API server alone, which is there in seconds. With ``tokens``, pods get those of their
    service accounts.
    """

    def __init__(
        self, directory: Path, *, nodes: int = 0, api_options: Sequence[str] = (), tokens: bool = False
    ) -> None:
        self.directory = directory
        self.token = secrets.token_urlsafe()
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._ends = contextlib.ExitStack()
        authority = Authority(directory)
        self.ca = authority.ca
        pair = authority.issue("apiserver", hosts=("127.0.0.1", "localhost", SERVICE))
        signing = Authority(directory, "service-accounts").issue("signer")
        (directory / "tokens.csv").write_text(f"{self.token},admin,admin,system:masters\n")
        self._session = self._ends.enter_context(requests.Session())
        self._session.trust_env = False
        self.kubeconfig = self.write_kubeconfig("kubeconfig", self.token)
        # Paths of Unix sockets must be short.
        short = tempfile.TemporaryDirectory(prefix="fs-k8s-", dir="/tmp", ignore_cleanup_errors=True)
        self.short_directory = Path(self._ends.enter_context(short))
        self._etcd_port, peer = free_port(), free_port()
        etcd_url, peer_url = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{peer}"
        self.etcd = self._program(
            "etcd",
            self._etcd_answers,
            *("etcd", "--name", "test", "--data-dir", directory / "etcd", "--logger", "zap", "--log-outputs", "stderr"),
            *("--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
            *("--initial-cluster", f"test={peer_url}"),
        )
        admission = () if tokens else ("--disable-admission-plugins", "ServiceAccount")
        self.api_server = self._program(
            "kube-apiserver",
            self._api_answers,
            *(programs() / "kube-apiserver", "--etcd-servers", etcd_url, "--authorization-mode", "RBAC"),
            *("--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", self.port),
            *("--tls-cert-file", pair.certificate, "--tls-private-key-file", pair.key, "--cert-dir", directory),
            *("--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none"),
            *("--token-auth-file", directory / "tokens.csv", "--service-account-issuer", "https://kubernetes.test"),
            *("--service-account-signing-key-file", signing.key, "--service-account-key-file", signing.certificate),
            *(*admission, "--allow-privileged=true", *api_options),
        )
        insecure = ("--port", "0") if release() < (1, 24) else ()
        client = ("--kubeconfig", self.kubeconfig, "--leader-elect=false", *insecure, "--secure-port", "0")
        self.scheduler = self._program("kube-scheduler", lambda: True, programs() / "kube-scheduler", *client)
        self.controllers = self._program(
            "kube-controller-manager",
            self._untainted,
            *(programs() / "kube-controller-manager", *client, "--controllers", _CONTROLLERS),
            *("--node-monitor-grace-period", f"{GRACE}s", "--node-monitor-period", "1s", "--node-eviction-rate", "10"),
            *("--service-account-private-key-file", signing.key, "--root-ca-file", self.ca),
        )
        self._count = nodes
        self.nodes: dict[str, HollowNode] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as failed:
            failed.callback(self._close)
            self.etcd.start()
            self.api_server.start()
            for number in range(1, self._count + 1):
                self.add_node(f"hollow-{number}", wait=False)
            for node in self.nodes.values():
                node.wait_ready()
            if self.nodes:
                self.scheduler.start()
                self.controllers.start()  # after the nodes: without a ready one it would assume that all have failed
            failed.pop_all()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._close()

    # The API server as a coordination service of tests: the verbs of ``servers.Server``.

    kind: Final = "kubernetes"

    def start(self) -> None:
        self.api_server.start()

    def kill(self) -> None:
        self.api_server.kill()

    def freeze(self) -> None:
        self.api_server.freeze()

    def thaw(self) -> None:
        self.api_server.thaw()

    def add_node(self, name: str, *, wait: bool = True) -> HollowNode:
        """Start one more hollow node."""
        node = self.nodes[name] = HollowNode(self, name)
        self._ends.callback(node.link.kill)
        self._ends.callback(node.kill)
        node.launch()
        if wait:
            node.wait_ready()
        return node

    def call(self, method: str, path: str, body: Any = None, *, content: str = "application/json") -> Any:
        """Return the answer of the API server to an administrator; ``requests.HTTPError`` with what it says."""
        answer = self._session.request(
            method, self.url + path, data=None if body is None else json.dumps(body), verify=str(self.ca),
            headers={"Content-Type": content, "Authorization": f"Bearer {self.token}"}, timeout=_CALL,
        )  # fmt: skip
        if not answer.ok:
            raise requests.HTTPError(f"{method} {path}: {answer.status_code} {answer.text[:500]}", response=answer)
        return answer.json()

    def node(self, name: str) -> dict[str, Any]:
        """Return a Node as the API server has it."""
        found: dict[str, Any] = self.call("GET", f"/api/v1/nodes/{name}")
        return found

    def readiness(self, name: str) -> str:
        """Return the status of the condition Ready: True, False or Unknown; "" if there is none."""
        conditions = self.node(name)["status"].get("conditions", ())
        return next((one["status"] for one in conditions if one["type"] == "Ready"), "")

    def is_ready(self, name: str) -> bool:
        """Whether the node is ready; False also while the API server does not answer."""
        with contextlib.suppress(requests.RequestException):
            return self.readiness(name) == "True"
        return False

    def pods(self, namespace: str = "default") -> list[dict[str, Any]]:
        """Return the pods of a namespace."""
        found: list[dict[str, Any]] = self.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create these objects, which have ``apiVersion``, ``kind`` and a name, as ``kubectl apply`` does."""
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "-f", "-", given=listed)

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Run kubectl as an administrator; ``RuntimeError`` with what it says if it fails."""
        home = {"HOME": str(self.directory), "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [programs() / "kubectl", "--kubeconfig", self.kubeconfig, *arguments],
            input=given, capture_output=True, text=True, check=False, timeout=PATIENCE, env=home,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def account(
        self,
        name: str,
        rules: Sequence[dict[str, Any]] = (),
        *,
        namespace: str = "default",
        everywhere: bool = False,
    ) -> str:
        """Create a service account with these rules in its namespace, or everywhere, and return a token of it."""
        about = {"name": name, "namespace": namespace}
        rbac, kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}, "ClusterRole" if everywhere else "Role"
        self.apply(
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
            {**rbac, "kind": kind, "metadata": about, "rules": list(rules)},
            {
                **rbac, "kind": f"{kind}Binding", "metadata": about,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", **about}],
            },
        )  # fmt: skip
        return self.account_token(name, namespace)

    def account_token(self, name: str, namespace: str = "default") -> str:
        """Return a token of a service account that exists."""
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
        answer = self.call("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", asked)
        return str(answer["status"]["token"])

    def account_kubeconfig(self, name: str, namespace: str = "default") -> Path:
        """Return a kubeconfig with such a token."""
        return self.write_kubeconfig(f"{name}.kubeconfig", self.account_token(name, namespace), namespace=namespace)

    def write_kubeconfig(self, name: str, token: str, *, port: int = 0, namespace: str = "default") -> Path:
        """Write a kubeconfig into the cluster's directory; ``port``: that of a link instead of the API server's."""
        url = f"https://127.0.0.1:{port or self.port}"
        ca = base64.b64encode(self.ca.read_bytes()).decode()
        path = self.directory / name
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority-data": ca}}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
        }))  # fmt: skip
        path.chmod(0o600)
        return path

    def _program(self, name: str, ready: Callable[[], bool], *command: Any) -> Program:
        program = Program(name, self.directory, lambda: [str(word) for word in command], ready)
        self._ends.callback(program.kill)
        return program

    def _close(self) -> None:
        self._ends.close()

    def _etcd_answers(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self._etcd_port}/health", timeout=2).text.find("true") > 0
        return False

    def _api_answers(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            ready = self._session.get(f"{self.url}/readyz", verify=str(self.ca), timeout=5)
            return ready.text == "ok" and bool(self.call("GET", "/api/v1/namespaces/default"))
        return False

    def _untainted(self) -> bool:
        with contextlib.suppress(requests.RequestException):
            return not any(self.node(name)["spec"].get("taints") for name in self.nodes)
        return False
