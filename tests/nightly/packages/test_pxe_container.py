"""The PXE filter in a container, as the DaemonSet runs it: on its host's network, as root with three capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml

from tests import ROOT
from tests.nightly.packages.conftest import Podman
from tests.support.databases import sqlite
from tests.support.processes import until
from tests.support.pxe.netns import Netns, bridge, need_root

NAME = "pxe-filter"


@pytest.fixture
def host() -> Iterator[Netns]:
    """Give a boot host: a network namespace with the interface on which machines boot."""
    need_root()
    space = Netns("container")
    bridge(space, "eth1")
    yield space
    space.close()


def _container() -> dict[str, Any]:
    objects = yaml.safe_load_all((ROOT / "deploy/kubernetes/pxe-filter/pxe-filter.yaml").read_text())
    (daemons,) = (one for one in objects if one["kind"] == "DaemonSet")
    found: dict[str, Any] = daemons["spec"]["template"]["spec"]["containers"][0]
    return found


def _is_open(host: Netns) -> bool:
    return "expires" in host.run("nft", "list", "set", "inet", "ferroscope_pxe_default", "open").stdout


def _answers(host: Netns) -> bool:
    with host.entered(), suppress(OSError), urlopen("http://127.0.0.1:9106/metrics", timeout=5) as answer:
        return bool(answer.status == 200)
    return False


def test_it_opens_the_kernels_filter_and_a_killed_container_leaves_it_closed(
    podman: Podman, host: Netns, tmp_path: Path
) -> None:
    url = sqlite(tmp_path)
    inside = tmp_path / "etc"
    inside.mkdir()
    shipped = (ROOT / "deploy/kubernetes/pxe-filter/ferroscope.conf").read_text()
    (inside / "ferroscope.conf").write_text(f"{shipped}\n[database]\nconnection = {url}\n")
    allowed = _container()["securityContext"]["capabilities"]
    assert allowed["drop"] == ["ALL"]
    podman.start(
        NAME, *_container()["args"], network=f"ns:/run/netns/{host.name}",
        options=(
            "--user", "0:0", *(f"--cap-add={one}" for one in allowed["add"]),
            "--mount", f"type=bind,source={inside},destination=/etc/ferroscope,readonly=true",
            "--mount", f"type=bind,source={tmp_path},destination={tmp_path}",
            "--mount", "type=tmpfs,destination=/tmp",
        ),
    )  # fmt: skip
    try:
        assert until(lambda: _is_open(host)), podman.call("logs", NAME).stderr
        assert until(lambda: _answers(host)), "the probe would restart it"
        podman.call("kill", "--signal", "KILL", NAME)
        assert until(lambda: not _is_open(host)), "the kernel closes it"
    finally:
        podman.call("rm", "--force", NAME)
