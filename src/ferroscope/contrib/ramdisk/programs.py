"""Runs the programs of a build. What they print is kept, so that a failure can be said in one line.

Their environment is the same for everybody, except for what says how servers are reached: what they make must not
depend on who runs them, where, and with which settings.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Final

import msgspec

from ferroscope.contrib.ramdisk.manifest import RamdiskError

_END_SECONDS: Final = 60.0
# apt and pip give up a server that is silent, but never one that sends a byte now and then.
_MOST_SECONDS: Final = 2 * 3600.0
_FIXED: Final = {"HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"}
# Of the caller's environment: proxies, and the certificates with which servers are verified.
_PASSED_ON: Final = re.compile(r"(https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY|SSL_CERT_(FILE|DIR)")
BUILD_UMASK: Final = 0o022
# Kills the group of processes whose number it has read last, once this process has ended or was killed.
_GUARD: Final = 'while read -r line; do group=$line; done; [ -z "$group" ] || kill -s KILL -- "-$group"'
# Programs that start others.
_BEFORE: Final = frozenset({"unshare", "env"})
_ERROR: Final = re.compile(
    r"^(E: |(fatal )?error: |fatal: |xorriso : (FAILURE|FATAL) : )(?P<text>.+?)( \(from versions: |$)", re.IGNORECASE
)
_NO_SPACE: Final = re.compile(r"No space left on device|have enough free space|Disk quota exceeded")
# What apt says -> what to do.
_KNOWN: Final = (
    (
        re.compile("Unable to locate package|no installation candidate|Version '[^']+' for '[^']+' was not found"),
        "check the names of --extra-package",
    ),
    (
        re.compile("Failed to fetch|Hash Sum mismatch|unexpected size|is not signed"),
        "run it again, or choose another mirror: --mirror URL, --security-mirror URL",
    ),
)
_STUCK: Final = "--verbose shows what it waits for: if that is a mirror, choose another one with --mirror URL"
MAKE_ROOM: Final = "make room, or choose another --directory"


class InterruptedBuildError(RamdiskError):
    """The build was interrupted."""


class ProgramRunner(msgspec.Struct):
    """Keeps what programs print, or shows it if it is ``loud``.

    ``environment``: what the programs of this build have in it beside what all have.
    """

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
        seconds: float = _MOST_SECONDS,
    ) -> None:
        """Run a program to its end; ``RamdiskError`` says what was being done, and the program's own error.

        ``passed_on``: more names of variables that the program gets from the caller's environment. ``seconds``: how
        long it may take.
        """
        passed = {name: value for name, value in os.environ.items() if passed_on and passed_on.fullmatch(name)}
        # In memory: on a full disk, the program could not say so.
        with os.fdopen(os.memfd_create("printed"), "r+b") as printed, _guard() as guarded:
            out = None if self.loud else printed
            process = subprocess.Popen(  # noqa: S603
                list(command), stdin=stdin, stdout=out, stderr=out,
                env=fixed_environment(self.environment) | passed, umask=BUILD_UMASK,
                process_group=0,
            )  # fmt: skip
            try:
                guarded(process.pid)
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                _end(process)
                late = f"{_program(command)} has not ended after {seconds / 60:.0f} minutes"
                raise RamdiskError(f"{doing} failed: {late}", advice or _STUCK) from None
            except BaseException:
                _end(process)
                raise
            if not status:
                return
            printed.seek(0)
            text = printed.read().decode(errors="replace")
        why = reason(text, status)
        advice = (
            known_advice(why)
            or advice
            or ("" if self.loud else "run it again with --verbose to see all that was printed")
        )
        raise RamdiskError(f"{doing} failed: {_program(command)}: {why}", advice)


def known_advice(why: str) -> str:
    """Return what to do about a reason of a failure, "" if that is not known."""
    if _NO_SPACE.search(why):
        return MAKE_ROOM
    return next((advice for pattern, advice in _KNOWN if pattern.search(why)), "")


def reason(printed: str, status: int) -> str:
    """Return why a program failed: that the disk is full, else its first error, else the last that it has printed."""
    lines = [" ".join(line.split()) for line in printed.splitlines() if line.strip()]
    full = [line for line in lines if _NO_SPACE.search(line)]
    errors = [match["text"] for line in lines if (match := _ERROR.match(line)) and "exited" not in line]
    ended = f"ended by signal {-status}" if status < 0 else f"exit code {status}"
    return (full or errors or lines[-1:] or [ended])[0][:300]


def _program(command: Sequence[str]) -> str:
    """Return the name of the program that does the work."""
    return next(Path(word).name for word in command if not word.startswith("-") and word not in _BEFORE)


def fixed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program."""
    passed_on = {name: value for name, value in os.environ.items() if _PASSED_ON.fullmatch(name)}
    return _FIXED | passed_on | dict(environment)


@contextmanager
def _guard() -> Iterator[Callable[[int], object]]:
    """Yield what takes a program's number: if this process is killed, that ends, with all that it has started.

    PR_SET_PDEATHSIG would reach the program alone, and not what it has started.
    """
    with subprocess.Popen(  # noqa: S603
        ["sh", "-c", _GUARD],  # noqa: S607
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    ) as guard:  # fmt: skip
        pipe = guard.stdin
        assert pipe is not None  # noqa: S101  # it is a pipe
        try:
            yield lambda group: os.write(pipe.fileno(), b"%d\n" % group)
        finally:
            guard.communicate(b"\n")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let the program and all that it has started end; kill what is left, after a while or when told to stop again.

    mmdebstrap itself only waits for what it has started, and then removes what it has made.
    """
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(_END_SECONDS)
    except (ProcessLookupError, subprocess.TimeoutExpired):
        pass
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def usual_permissions() -> Iterator[None]:
    """Make what this process writes readable for other users, as the user of a namespace is one."""
    before = os.umask(BUILD_UMASK)
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
