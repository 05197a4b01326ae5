"""Gives the files of a release, and a cluster that runs its image."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT
from tests.nightly.kubelet.stranger import PAGE, Stranger, installed
from tests.support.kubernetes_node import Rack
from tests.support.servers import made_once
from tools.packaging import contents, dist, image, release


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/nightly/kubelet/"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture(scope="session")
def released() -> Path:
    """Give the directory of a release, with what a user of Kubernetes takes from it: built once for all processes."""

    def make(directory: Path) -> None:
        dist.build(directory)
        release.chart(directory)
        image.build(directory / f"ferroscope-{contents.VERSION}-{contents.architecture()}.oci.tar")

    return made_once("release", make)


@pytest.fixture(scope="session")
def venv(released: Path) -> Path:
    """Give the environment with the wheel, made before there is a rack, which leaves less of the machine for it."""
    return installed(released)


@pytest.fixture(scope="module")
def rack(released: Path, venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    """Give a cluster with two nodes that have the image, which the tests of a module share."""
    with Rack(tmp_path_factory.mktemp("rack")) as rack:
        assert "`ctr --namespace k8s.io images import FILE`" in (ROOT / PAGE).read_text()
        (archive,) = released.glob("*.oci.tar")
        for node in rack.nodes.values():
            assert f"localhost/ferroscope:{contents.VERSION}" in node.load(archive)
        yield rack


@pytest.fixture
def stranger(rack: Rack, released: Path, venv: Path, tmp_path: Path) -> Iterator[Stranger]:
    """Give somebody who has the files of the release, a kubeconfig and the page."""
    stranger = Stranger(tmp_path, released, venv, rack)
    yield stranger
    stranger.close()
