"""``ferroscope failover`` and a real API server that it cannot use, or not fully: it says so when it starts."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from bench.service import executable
from ferroscope.config.errors import SetupError
from ferroscope.contrib.kubernetes import role
from ferroscope.contrib.kubernetes.api import Right
from ferroscope.contrib.kubernetes.failover.client import FORCING_RIGHTS, RIGHTS
from ferroscope.contrib.kubernetes.failover.reading import TAINT_SINCE
from ferroscope.contrib.kubernetes.options import FailoverSettings
from tests.support import databases
from tests.support.certificates import Authority
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_programs import release
from tests.support.processes import PATIENCE, free_port

_ALL = (*RIGHTS, *FORCING_RIGHTS, Right("create", "", "pods/eviction"))


@pytest.mark.parametrize("missing", _ALL, ids=lambda right: f"{right.verb}-{right.resource.replace('/', '-')}")
def test_a_missing_right_is_named_with_the_rule_that_grants_it(api_server: Cluster, missing: Right) -> None:
    name = f"failover-without-{missing.verb}-{missing.resource.replace('/', '-')}"
    rules = [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in _ALL if one != missing
    ]
    token = api_server.account(name, rules, everywhere=True)
    file = api_server.write_kubeconfig(f"{name}.kubeconfig", token)
    wanted = FailoverSettings(kubeconfig=str(file), mode="label")
    kube = role.connect(wanted)
    try:
        with pytest.raises(SetupError) as said:
            role.check_cluster(kube, wanted)
    finally:
        kube.close()
    assert f"{missing.verb} {missing.resource}" in said.value.summary
    assert said.value.advice.count("apiGroups") == 1
    assert missing.rule in said.value.advice


@pytest.mark.parametrize("wrong", ["token", "port", "authority", "context", "file"])
def test_a_wrong_kubeconfig_stops_the_start_with_one_sentence(api_server: Cluster, tmp_path: Path, wrong: str) -> None:
    file = api_server.write_kubeconfig(
        f"failover-wrong-{wrong}.kubeconfig",
        "wrong" if wrong == "token" else api_server.token,
        port=free_port() if wrong == "port" else 0,
    )
    given = json.loads(file.read_text())
    if wrong == "authority":
        (tmp_path / "other").mkdir()
        given["clusters"][0]["cluster"] = {
            "server": api_server.url, "certificate-authority": str(Authority(tmp_path / "other").ca),
        }  # fmt: skip
    file.write_text("apiVersion: [" if wrong == "file" else json.dumps(given))
    url = f"sqlite:///{tmp_path}/f.db"
    databases.upgrade(url)
    config = tmp_path / "f.conf"
    context = "context = nobody\n" if wrong == "context" else ""
    config.write_text(f"[database]\nconnection = {url}\n[failover]\nkubeconfig = {file}\n{context}")
    for command in (["failover"], ["failover", "plan"]):
        done = subprocess.run(
            [executable(), *command, "-c", str(config)], capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        # The process does not start with what the file says; what the API server says may be otherwise the next time.
        refused = command == ["failover"] and wrong in ("context", "file")
        assert (done.returncode, done.stdout) == (78 if refused else 1, "")
        (line,) = done.stderr.splitlines()
        option = "context" if wrong == "context" else "kubeconfig"
        assert f"[failover] {option}" in line


@pytest.mark.parametrize("off", [0.0, 120.0, -120.0])
def test_an_old_server_and_a_clock_that_is_off_are_reported(
    api_server: Cluster, monkeypatch: pytest.MonkeyPatch, off: float
) -> None:
    wanted = FailoverSettings(kubeconfig=str(api_server.kubeconfig))
    kube, true = role.connect(wanted), time.time
    monkeypatch.setattr("ferroscope.contrib.kubernetes.api.time.time", lambda: true() - off)
    try:
        said = role.check_cluster(kube, wanted)
    finally:
        kube.close()
    assert kube.skew() == pytest.approx(off, abs=10)
    assert len(said) == (release() < TAINT_SINCE) + (off != 0.0)
