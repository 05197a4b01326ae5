"""Runs the programs of a build. What they print is kept, so that a failure can be said in one line."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import IO, Final

import msgspec

from ferroscope.boot_config.ramdisk.plan import RamdiskError

_END_SECONDS: Final = 60.0
_ERROR: Final = re.compile(r"^(E: |ERROR: |error: |fatal: |xorriso : (FAILURE|FATAL) : )(?P<text>.+)$", re.IGNORECASE)


class InterruptedBuildError(RamdiskError):
    """The build was told to stop."""


class Runner(msgspec.Struct):
    """``log``: the file to which programs write; ``loud``: to standard error instead."""

    log: Path
    environment: Mapping[str, str]
    loud: bool = False

    def run(
        self, command: Sequence[str], doing: str, *, stdin: IO[bytes] | int = subprocess.DEVNULL, advice: str = ""
    ) -> None:
        """Run a program to its end; ``RamdiskError`` says what was being done, and the program's own error."""
        with self.log.open("ab") as log:
            start = log.tell()
            out = None if self.loud else log
            process = subprocess.Popen(  # noqa: S603
                list(command), stdin=stdin, stdout=out, stderr=out, env=dict(os.environ) | dict(self.environment)
            )
            try:
                status = process.wait()
            except BaseException:
                _end(process)
                raise
        if status:
            raise RamdiskError(
                f"{doing} failed: {self._reason(start, Path(command[0]).name, status)}",
                advice or ("" if self.loud else "run it again with --verbose to see all that was printed"),
            )

    def _reason(self, start: int, program: str, status: int) -> str:
        with self.log.open("rb") as log:
            log.seek(start)
            lines = log.read().decode(errors="replace").splitlines()
        lines = [line.strip() for line in lines if line.strip()]
        # The first error is the cause, the last line of other programs is.
        found = [match["text"] for line in lines if (match := _ERROR.match(line)) and "exited" not in line]
        ended = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
        return f"{program}: {(found or lines[-1:] or [ended])[0][:300]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the program remove what it has mounted, then wait for it."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def ends_orderly() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the build like Ctrl-C does, so that nothing of it stays."""

    def stop(number: int, _: FrameType | None) -> None:
        raise InterruptedBuildError(f"stopped by {signal.Signals(number).name}", "nothing was changed; run it again")

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
