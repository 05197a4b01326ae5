"""The Helm chart on a real control plane: accepted with any values, and an upgrade that fails."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import requests

from tests.support.databases import upgrade
from tests.support.installation import Played
from tests.support.kubernetes import Cluster
from tests.support.manifests import run, templated
from tests.support.processes import PATIENCE, free_port
from tools.packaging import release

SPACE = "inspection"
NAME = "metal"  # the release; its objects are named metal-ferroscope-...


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """Give the chart as a file, as a release has it."""
    release.chart(tmp_path)
    (file,) = tmp_path.glob("*.tgz")
    return file


def test_it_is_not_installed_without_its_secrets(api_server: Cluster, chart: Path) -> None:
    with pytest.raises(RuntimeError, match=r"no Secret ferroscope-database with OS_DATABASE__CONNECTION"):
        _helm(api_server, "install", NAME, str(chart), "--dry-run=server")
    _secrets(api_server, "default")
    _helm(api_server, "install", NAME, str(chart), "--dry-run=server", namespace="default")
    with pytest.raises(RuntimeError, match=r"no Secret people with the file htpasswd"):
        _helm(
            api_server, "install", NAME, str(chart), "--dry-run=server", "--set", "users.secret=people",
            namespace="default",
        )  # fmt: skip


def test_the_failed_node_controller_starts_with_the_options_and_the_rights_of_the_chart(
    api_server: Cluster, tmp_path: Path
) -> None:
    objects = templated({"failover.enabled": True}, release="starts", namespace="default")
    kinds = {"ServiceAccount"} | {f"{scope}{kind}" for scope in ("", "Cluster") for kind in ("Role", "RoleBinding")}
    api_server.apply(*(one for one in objects if one["kind"] in kinds))
    account = "starts-ferroscope-failover"
    (options,) = (one for one in objects if one["kind"] == "ConfigMap" and one["metadata"]["name"] == account)
    conf = tmp_path / "ferroscope.conf"
    conf.write_text(options["data"]["ferroscope.conf"])
    port, database = free_port(), f"sqlite:///{tmp_path}/ferroscope.db"
    upgrade(database)
    given = {
        "OS_DATABASE__CONNECTION": database,
        "OS_METRICS__PORT": port,
        "OS_FAILOVER__KUBECONFIG": api_server.account_kubeconfig(account),
    }
    command = [sys.executable, "-m", "ferroscope", "failover", "-c", str(conf)]
    process = Played("failover", tmp_path, ["env", *(f"{name}={value}" for name, value in given.items()), *command])
    try:
        process.wait_ready()
        assert requests.get(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE).status_code == 200
    finally:
        process.end()


def test_a_failed_upgrade_of_the_schema_changes_nothing(three_nodes: Cluster, chart: Path) -> None:
    cluster = three_nodes
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    _secrets(cluster, SPACE)
    with _database(cluster):
        _helm(cluster, "install", NAME, str(chart))
    before = _names(cluster, "worker")
    with _database(cluster, works=False), pytest.raises(RuntimeError, match="pre-upgrade hooks failed"):
        _helm(cluster, "upgrade", NAME, str(chart), "--set", "worker.config.worker.threads=4")
    assert _names(cluster, "worker") == before
    jobs = cluster.kubectl("get", "jobs", "--namespace", SPACE, "-o", "name")
    assert f"{NAME}-ferroscope-db-upgrade" in jobs  # its log says why


def _helm(cluster: Cluster, *words: str, namespace: str = SPACE) -> str:
    return run("helm", *words, "--namespace", namespace, "--timeout", "4m", kubeconfig=cluster.kubeconfig)


def _secrets(cluster: Cluster, namespace: str) -> None:
    named = {"ferroscope-database": "OS_DATABASE__CONNECTION", "ferroscope-users": "htpasswd"}
    cluster.apply(*(
        {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "stringData": {key: "given"},
        }
        for name, key in named.items()
    ))  # fmt: skip


@contextmanager
def _database(cluster: Cluster, *, works: bool = True) -> Iterator[None]:
    """Play ``ferroscope db upgrade``, which a hollow node does not run."""
    done: set[str] = set()
    stop = threading.Event()
    name = f"{NAME}-ferroscope-db-upgrade"
    job = f"/apis/batch/v1/namespaces/{SPACE}/jobs/{name}"
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}

    def play() -> None:
        while not stop.wait(0.2):
            with suppress(requests.RequestException):
                uid = cluster.call("GET", job)["metadata"]["uid"]
                pods = [one for one in cluster.pods(SPACE) if one["metadata"]["labels"].get("job-name") == name]
                for pod in pods:
                    if pod["status"]["phase"] == "Running" and uid not in done:
                        path = f"/api/v1/namespaces/{SPACE}/pods/{pod['metadata']['name']}" if works else job
                        body = {"status": {"phase": "Succeeded"} if works else failed}
                        cluster.call("PATCH", f"{path}/status", body, content="application/merge-patch+json")
                        done.add(uid)

    thread = threading.Thread(target=play)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _names(cluster: Cluster, role: str) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in cluster.pods(SPACE)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == role
        and "deletionTimestamp" not in pod["metadata"]
    }
