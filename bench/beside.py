"""A process that works for the benchmark: told by JSON lines, answering with JSON lines.

What drives the load must not share a process, nor a lock, with what is measured or with what measures.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from bench.usage import cpu_seconds

T = TypeVar("T")

_ROOT: Final = Path(__file__).parents[1]
_END: Final = 20.0


class BesideError(Exception):
    """The process is gone; the message has what it said last."""


class Beside:
    """``python -m MODULE`` as a context manager; its standard error goes to ``log``."""

    def __init__(self, module: str, log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )

    def __enter__(self) -> Beside:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it by ending its input; a process that does not take the hint is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END if error is None else 1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, question: object, kind: type[T]) -> T:
        """Send one line and return the answer, decoded as ``kind``; ``BesideError``."""
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise BesideError("no pipes")
        try:
            stdin.write(msgspec.json.encode(question) + b"\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        line = stdout.readline()
        if not line:
            raise BesideError(f"the process beside the service is gone:\n{self._log.read_text()[-3000:]}")
        return msgspec.json.decode(line, type=kind)

    def do(self, verb: str, kind: type[T], **arguments: Any) -> T:
        """Send a command."""
        return self.ask({"do": verb, **arguments}, kind)

    def cpu(self) -> float:
        """Return the CPU seconds that it has used so far."""
        return cpu_seconds(self._process.pid)
