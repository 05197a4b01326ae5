"""The OCI image runs as nobody in particular, writes nothing but its temporary files, and has what the roles need."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import ferroscope
from tests.nightly.packages.conftest import Podman

MEGABYTE = 1_000_000
WRITABLE = ("--mount", "type=tmpfs,destination=/tmp")
# Imports what every extra brings, but for parquet, which requirements.txt leaves out for its size.
EXTRAS = (
    "import psycopg, pymysql, keystoneauth1, keystonemiddleware, openstack, amqp, kombu, lightkube, jinja2, tooz, "
    "redis, opentelemetry.exporter.otlp.proto.http.trace_exporter"
)


def test_a_machine_is_inspected_with_a_read_only_root(podman: Podman) -> None:
    done = podman.run("demo", "--nodes", "1", options=WRITABLE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 boot for 1 inspection" in done.stdout or "All 1 finished" in done.stdout, done.stdout


def test_it_runs_without_root_and_without_a_place_to_write(podman: Podman) -> None:
    done = podman.run("--version")
    assert done.stdout.split()[-1] == ferroscope.__version__, done.stderr
    script = "import os; print(os.getuid(), os.getgid(), os.access('/', os.W_OK), os.path.exists('/bin/sh'))"
    assert podman.run("-c", script, program="python3").stdout.split() == ["10001", "10001", "False", "False"]
    other = podman.run("--version", options=("--user", "4711:4711"))  # as OpenShift does
    assert other.returncode == 0, other.stderr


def test_it_has_every_extra_and_the_programs_that_the_roles_run(podman: Podman) -> None:
    done = podman.run("-c", EXTRAS, program="python3")
    assert done.returncode == 0, done.stderr
    for program, words in (
        ("ipmitool", ["-V"]),
        ("nft", ["--version"]),
        ("iptables", ["--version"]),
        ("ipset", ["-v"]),
    ):
        done = podman.run(*words, program=program)
        assert "v" in done.stdout, f"{program}: {done.stdout}{done.stderr}"


def test_a_wrong_configuration_ends_it_with_a_sentence(podman: Podman) -> None:
    done = podman.run("api", options=("--env", "OS_DATABASE__CONNECTION=postgresql://u:secret@127.0.0.1:1/f"))
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    assert "secret" not in done.stdout + done.stderr


def test_it_is_small_and_lists_its_debian_packages(archive: Path, podman: Podman) -> None:
    assert archive.stat().st_size < 150 * MEGABYTE
    inspected = json.loads(podman.call("image", "inspect", podman.name).stdout)[0]
    assert inspected["Size"] < 160 * MEGABYTE
    config: dict[str, Any] = inspected["Config"]
    assert config["User"] == "10001:10001"
    assert config["Labels"]["org.opencontainers.image.version"] == ferroscope.__version__
    names = _names(archive)
    assert {"var/lib/dpkg/status.d/libssl3", "var/lib/dpkg/status.d/nftables"} <= names
    assert "usr/share/ferroscope/deploy/kubernetes/base/api.yaml" in names
    assert not [one for one in names if "/dist-packages/bin/" in one]  # with the path of the builder's Python
    assert not names & {"usr/bin/perl", "usr/bin/dpkg", "bin/sh", "bin/bash", "usr/bin/openssl"}


def _names(archive: Path) -> set[str]:
    names = set()
    with tarfile.open(archive) as outer:
        manifest_digest = json.load(_member(outer, "index.json"))["manifests"][0]["digest"]
        manifest = json.load(_member(outer, f"blobs/{manifest_digest.replace(':', '/')}"))
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=_member(outer, f"blobs/{layer['digest'].replace(':', '/')}")) as inner:
                names |= set(inner.getnames())
    return names


def _member(archive: tarfile.TarFile, name: str) -> Any:
    found = archive.extractfile(name)
    assert found is not None
    return found
