"""What tests run as an installation: processes that may be harmed, and parts that end with the test.

``Played`` is one process; an ``Installation`` is begun part by part, and ended from the last part to the first,
also where its beginning fails halfway.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from tests.support.processes import PATIENCE, signal_tree, spawn, tree, until

T = TypeVar("T")


class Played:
    """One process, with a log of its own, which may be ended and started again."""

    def __init__(self, name: str, directory: Path, command: Sequence[str], *, cwd: Path | None = None) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._command = command
        self._cwd = cwd or directory
        self.starts = 0
        self.process: subprocess.Popen[bytes]
        self.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def start(self) -> None:
        """Start it; ``wait_ready`` tells when it is."""
        self._from = self.log.stat().st_size if self.log.exists() else 0
        self.process = spawn(self._command, user=None, directory=self._cwd, log=self.log)
        self.starts += 1

    def wait_ready(self, word: str = "ready") -> None:
        """Return when it has logged this."""
        self.wait_until(lambda: self.ready(word))

    def wait_until(self, ready: Callable[[], bool], *, seconds: float | None = None) -> None:
        """Return when this holds; raise with what it has logged where it ends before that."""
        until(lambda: not self.alive or ready(), seconds=seconds)
        if not ready():
            raise RuntimeError(f"{self.name} did not become ready:\n{self.output()[-3000:]}")

    def ready(self, word: str = "ready") -> bool:
        """Tell whether it has logged this as a word: an address that is already in use says something else."""
        return re.search(rf"\b{re.escape(word)}\b", self.output()) is not None

    def output(self) -> str:
        """Return what it has logged since it was last started."""
        return self.log.read_bytes()[self._from :].decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL to the process alone."""
        self.process.kill()
        self.process.wait()

    def children(self) -> list[int]:
        return tree(self.pid)[1:]

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM; return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"{self.name} did not stop within {seconds:g} s:\n{self.output()[-3000:]}") from None

    def freeze(self) -> None:
        signal_tree(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        signal_tree(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Whatever it does: it is over."""
        self.thaw()
        for pid in reversed(self.children()):
            with_suppressed_kill(pid)
        self.kill()


def configuration(directory: Path, port: int, more: str = "", *, database: str = "") -> str:
    """Return what a service is configured with that serves one API on this host; what ``more`` says counts more."""
    database = database or f"sqlite:///{directory}/ferroscope.db"
    api = f"[api]\nhost = 127.0.0.1\nbare_metal_port = {port}\nintrospection_port = 0\n"
    return f"{api}[database]\nconnection = {database}\n{more}"


@contextlib.contextmanager
def running(
    name: str, directory: Path, command: Sequence[str], ready: Callable[[], bool], *, cwd: Path | None = None
) -> Iterator[Played]:
    """Run a process until the end of the block, which begins when it is ready."""
    played = Played(name, directory, command, cwd=cwd)
    try:
        played.wait_until(ready)
        yield played
    finally:
        played.end()


def with_suppressed_kill(pid: int) -> None:
    """SIGKILL a process that may be gone."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Installation:
    """``with`` it everything runs; subclasses have ``_start``, and give each part's end to ``after``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._ending.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def after(self, act: Callable[[], object]) -> None:
        """Have something done before all that was begun earlier ends."""
        self._ending.callback(act)

    def enter(self, part: AbstractContextManager[T]) -> T:
        """Begin a part, which ends with the rest."""
        return self._ending.enter_context(part)

    def play(self, name: str, command: Sequence[str], *, cwd: Path | None = None) -> Played:
        """Start a process, which ends with the rest."""
        played = Played(name, self.directory, command, cwd=cwd)
        self.after(played.end)
        return played

    def _start(self) -> None:
        raise NotImplementedError
