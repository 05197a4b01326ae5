"""Runs the programs of a build. What they print is kept, so that a failure can be said in one line.

Their environment is the same for everybody, except for what says how servers are reached: what they make must not
depend on who runs them, where, and with which settings.
"""

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

from ferroscope.boot_config.ramdisk.manifest import RamdiskError

_END_SECONDS: Final = 60.0
_FIXED: Final = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# Of the caller's environment: proxies, and the certificates with which servers are verified.
_PASSED_ON: Final = re.compile(r"(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)")
UMASK: Final = 0o022
# Programs that start others.
_BEFORE: Final = frozenset({"unshare", "env"})
_ERROR: Final = re.compile(
    r"^(E: |ERROR: |error: |fatal: |xorriso : (FAILURE|FATAL) : )(?P<text>.+?)( \(from versions: .*)?$", re.IGNORECASE
)


class InterruptedBuildError(RamdiskError):
    """The build was told to stop."""


class Runner(msgspec.Struct):
    """``log``: the file to which programs write; ``loud``: to standard error instead.

    ``environment``: what the programs of this build have in it beside what all have.
    """

    log: Path
    environment: Mapping[str, str]
    loud: bool = False

    def run(
        self,
        command: Sequence[str],
        doing: str,
        *,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
        advice: str = "",
        passed_on: re.Pattern[str] | None = None,
    ) -> None:
        """Run a program to its end; ``RamdiskError`` says what was being done, and the program's own error.

        ``passed_on``: more names of variables that the program gets from the caller's environment.
        """
        given = {name: value for name, value in os.environ.items() if passed_on and passed_on.fullmatch(name)}
        with self.log.open("ab") as log:
            start = log.tell()
            out = None if self.loud else log
            process = subprocess.Popen(  # noqa: S603
                list(command), stdin=stdin, stdout=out, stderr=out, env=fixed(self.environment) | given, umask=UMASK,
                process_group=0,
            )  # fmt: skip
            try:
                status = process.wait()
            except BaseException:
                _end(process)
                raise
        if status:
            raise RamdiskError(
                f"{doing} failed: {self._reason(start, _program(command), status)}",
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
        return f"{program}: {' '.join((found or lines[-1:] or [ended])[0].split())[:300]}"


def _program(command: Sequence[str]) -> str:
    """Return the name of the program that does the work."""
    return next(Path(word).name for word in command if not word.startswith("-") and word not in _BEFORE)


def fixed(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program."""
    passed_on = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    return _FIXED | passed_on | dict(environment)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the program remove what it has mounted; after a while, kill it with all that it has started."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def usual_permissions() -> Iterator[None]:
    """Make what this process writes readable for other users, as the user of a namespace is one."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)


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
