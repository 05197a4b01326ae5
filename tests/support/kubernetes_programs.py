"""The programs of Kubernetes, and one running process of them."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests import ROOT
from tests.support.processes import PATIENCE, spawn, until

_SECONDS: Final = 180.0  # for a program to start on a busy machine


@functools.cache
def programs() -> Path:
    """Return the directory of the programs; ``RuntimeError`` if they have not been built.

    ``KUBERNETES_PROGRAMS`` names another one, to try another release than Debian's.
    """
    if other := os.environ.get("KUBERNETES_PROGRAMS"):
        return Path(other)
    where = subprocess.run(
        [ROOT / "tools/kubernetes/build.sh", "where"], capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    found = Path(where.stdout.strip())
    if not found.is_dir():
        raise RuntimeError(f"{found} does not exist: run tools/setup.sh kubernetes")
    return found


@functools.cache
def release() -> tuple[int, int]:
    """Return the release of Kubernetes, such as 1.20."""
    command = [str(programs() / "kube-apiserver"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    major, minor, *_ = said.split()[1].removeprefix("v").split(".")
    return int(major), int(minor)


class Program:
    """One process of the cluster: started, killed, frozen and thawed by pid."""

    def __init__(
        self, name: str, directory: Path, command: Callable[[], Sequence[str]], ready: Callable[[], bool]
    ) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._directory = directory
        self._command = command
        self._ready = ready
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start it, without waiting."""
        assert not self.alive, f"{self.name} runs already"
        self._process = spawn(
            [str(word) for word in self._command()], user=None, directory=self._directory, log=self.log
        )

    def start(self) -> None:
        """Start it; return when it is ready."""
        self.launch()
        self.wait_ready()

    def wait_ready(self) -> None:
        """Wait until it is ready; ``RuntimeError`` with the end of its log if it ends instead."""
        if not until(lambda: not self.alive or self._ready(), seconds=_SECONDS) or not self.alive:
            end = self.log.read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{self.name} {'is not ready' if self.alive else 'ended'}: {end}")

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL, as when its host loses power; does nothing if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self) -> None:
        """SIGSTOP: it accepts connections, and never answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
