"""The probes of deploy/kubernetes ask real processes with the shipped configuration, and get what they expect."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import requests
import yaml

from tests import ROOT
from tests.support.faulty_kubernetes import FaultyKubernetes
from tests.support.installation import Played
from tests.support.processes import PATIENCE, free_port, until

DEPLOY = ROOT / "deploy/kubernetes"
ROLES = {"api": "base", "worker": "base", "failover": "failover"}
# What only a process of the role counts.
COUNTED = {"worker": "ferroscope_lease_renewal_failures", "failover": "ferroscope_failover_steps"}


def _container(role: str) -> dict[str, Any]:
    deployment = next(iter(yaml.safe_load_all((DEPLOY / ROLES[role] / f"{role}.yaml").read_text())))
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]["containers"][0]
    return found


@pytest.fixture(params=sorted(ROLES))
def role(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def process(role: str, port: int, tmp_path: Path) -> Iterator[Played]:
    """Give a role as its container runs it, but on a port and with a database, users and a cluster of this test."""
    if role == "api":  # as in the pods: a worker has no users
        (tmp_path / "htpasswd").write_text(f"alice:{bcrypt.hashpw(b'secret', bcrypt.gensalt(4)).decode()}:admin\n")
    database = f"sqlite:///{tmp_path}/ferroscope.db"
    subprocess.run([sys.executable, "-m", "ferroscope", "db", "upgrade", "--database", database], check=True)
    given: dict[str, Any] = {
        "OS_DATABASE__CONNECTION": database,
        "OS_API__HTTP_BASIC_AUTH_USER_FILE": tmp_path / "htpasswd",
        "OS_API__BARE_METAL_PORT": port,
        "OS_API__INTROSPECTION_PORT": 0,
        "OS_METRICS__PORT": 0 if role == "api" else port,
    }
    with ExitStack() as stack:
        if role == "failover":
            cluster = stack.enter_context(FaultyKubernetes())
            given["OS_FAILOVER__KUBECONFIG"] = file = tmp_path / "kubeconfig"
            file.write_text(json.dumps({
                "clusters": [{"name": "c", "cluster": {"server": cluster.url}}],
                "users": [{"name": "u", "user": {"token": "x"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
            }))  # fmt: skip
        config = DEPLOY / ROLES[role] / "ferroscope.conf"
        command = [sys.executable, "-m", "ferroscope", *_container(role)["args"], "-c", str(config)]
        played = Played(role, tmp_path, ["env", *(f"{name}={value}" for name, value in given.items()), *command])
        stack.callback(played.end)
        yield played


def test_a_healthy_process_passes_its_probes_without_credentials(process: Played, role: str, port: int) -> None:
    process.wait_ready()
    container = _container(role)
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    probes = [
        container[name]["httpGet"] for name in container if name.endswith("Probe") and "httpGet" in container[name]
    ]
    assert probes
    for probe in probes:
        assert probe["port"] in named
        # As the kubelet asks: by the address of the pod, which is a name that nobody has configured.
        answer = requests.get(f"http://127.0.0.1:{port}{probe['path']}", timeout=PATIENCE)
        assert answer.status_code == 200, f"{probe}: {answer.text[:300]}"
    if role != "api":
        assert until(lambda: COUNTED[role] in requests.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).text)
