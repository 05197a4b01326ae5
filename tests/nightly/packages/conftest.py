"""Marks everything here, and gives the image in a container store of its own."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import made_once
from tests.support.speed import slowness
from tools.packaging import contents, image


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/nightly/packages/"):
            item.add_marker(pytest.mark.timeout(1800))


class Podman:
    """Runs containers of one image as strictly as a cluster would: no capabilities, no new privileges, no writing."""

    def __init__(self, store: Path, run: Path, archive: Path) -> None:
        self._options = [
            "podman", "--root", str(store), "--runroot", str(run),
            "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--runtime", "runc",
        ]  # fmt: skip
        loaded = self.call("load", "--quiet", "--input", str(archive))
        assert loaded.returncode == 0, loaded.stderr
        self.name = f"{image.NAME}:{contents.VERSION}"

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run podman, and return what it said and its exit code."""
        return subprocess.run(
            [*self._options, *words], capture_output=True, text=True, check=False, timeout=900 * slowness()
        )

    def run(self, *words: str, program: str = "", options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run ``ferroscope WORDS``, or ``program WORDS``, in a container without network and with a read-only root."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        return self.call(
            "run", "--rm", "--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=all",
            # podman's own limits are higher than what a sandbox may set.
            "--security-opt=no-new-privileges", "--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=1000:1000",
            *(("--entrypoint", program) if program else ()), *options, self.name, *words,
        )  # fmt: skip

    def remove(self) -> None:
        self.call("rmi", "--all", "--force")


@pytest.fixture(scope="session")
def archive() -> Path:
    """Give the image as an OCI archive, built once for all processes of the test run."""
    return made_once("ferroscope.oci.tar", image.build)


@pytest.fixture(scope="session")
def podman(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Give the loaded image."""
    # podman takes no longer path than 50 characters for what it runs.
    with tempfile.TemporaryDirectory(prefix="podman-", ignore_cleanup_errors=True) as run:
        podman = Podman(tmp_path_factory.mktemp("podman"), Path(run), archive)
        yield podman
        podman.remove()
