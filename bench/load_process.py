"""A separate process that generates load, told what to do by JSON lines on its standard input, and answering each.

The load must share neither a process nor a lock with the service that is measured, nor with the benchmark itself.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bench.usage import cpu_seconds

T = TypeVar("T")

_ROOT: Final = Path(__file__).parents[1]
_END_SECONDS: Final = 20.0


class LoadProcessError(Exception):
    """The process has ended; the message has the end of its log."""


class LoadProcess:
    """``python -m MODULE`` as a context manager; its standard error goes to ``log``.

    ``python``: the interpreter of another tree.
    """

    def __init__(self, module: str, log: Path, *arguments: str, python: str = sys.executable) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [python, "-m", module, *arguments],
                cwd=_ROOT,
                env=os.environ | {"PYTHONHASHSEED": "0"},  # else two runs of the same count different instructions
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.pid = self._process.pid

    def __enter__(self) -> LoadProcess:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        """End it by closing its input; kill it if it does not react."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS if error is None else 1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def do(self, verb: str, kind: type[T], **arguments: Any) -> T:
        """Send a command and return the answer, decoded as ``kind``; ``LoadProcessError``."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(msgspec.json.encode({"do": verb, **arguments}) + b"\n")
                self._process.stdin.flush()
        line = self._process.stdout.readline() if self._process.stdout is not None else b""
        if not line:
            raise LoadProcessError(f"the load process has ended:\n{self._log.read_text(errors='replace')[-3000:]}")
        return msgspec.json.decode(line, type=kind)

    def cpu(self) -> float:
        """Return the CPU seconds that it has used so far."""
        return cpu_seconds(self.pid)


def serve(**verbs: Callable[..., object]) -> None:
    """Carry out commands until the input ends: the other side of ``LoadProcess``."""
    for line in sys.stdin:
        command = msgspec.json.decode(line)
        _say(verbs[command.pop("do")](**command))


async def serve_async(**verbs: Callable[..., Awaitable[object]]) -> None:
    """Do the same in an event loop, which has other work meanwhile."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        command = msgspec.json.decode(line)
        _say(await verbs[command.pop("do")](**command))


def _say(answer: object) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
