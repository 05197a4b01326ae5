"""Runs a command while a lease is held, and never longer; the entry point of a container.

Three processes: this one talks to the service; the command is the leader of its own session; and a watchdog, which
only kills the command when its time is over, or when this process has died. So neither SIGKILL nor SIGSTOP of this
process lets the command outlive the lease. If the watchdog dies, the command is ended, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ferroscope_lease import Lease, now

LOST_EXIT_CODE: Final = 75  # EX_TEMPFAIL: run it again
_TICK_SECONDS: Final = 0.05
_DONE: Final = b"done"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_FORWARDED: Final = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


class LeaseRunner:
    """``start`` before any thread, as it forks the watchdog; ``stop`` is set by SIGTERM and SIGINT."""

    def __init__(self, say: Callable[[str], object]) -> None:
        self.stop = threading.Event()
        self._say = say
        self._command: subprocess.Popen[bytes] | None = None
        self._code: int | None = None
        self._watchdog = 0
        self._pipe = -1

    def start(self) -> None:
        """Take over the signals of this process, adopt orphans, and start the watchdog."""
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        ours, self._pipe = os.pipe()
        self._watchdog = os.fork()
        if self._watchdog == 0:
            os.close(self._pipe)
            _watch(ours)
        os.close(ours)
        for number in _ENDING:
            signal.signal(number, lambda *_: self.stop.set())
        for number in _FORWARDED:
            signal.signal(number, lambda received, _frame: self._signal(received))

    def run(self, lease: Lease, command: Sequence[str], environment: Mapping[str, str], grace: float) -> int:
        """Run the command under the lease; return its exit code, or ``LOST_EXIT_CODE``."""
        # The watchdog knows the time before the command exists, and the command's group as soon as that exists.
        self._allow(lease)
        parent = os.getpid()

        def prepare() -> None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            os.write(self._pipe, f"{os.getpid()} {lease.trusted_until}\n".encode())
            if os.getppid() != parent or now() >= lease.trusted_until:
                os._exit(LOST_EXIT_CODE)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        # The command may run before its process ID is known here: a signal to be forwarded then waits.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        try:
            self._command = subprocess.Popen(list(command), env=dict(environment), preexec_fn=prepare)  # noqa: S603
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        lease.start()
        code = self._follow(lease, grace)
        self._end()
        return code

    def close(self) -> None:
        """End the watchdog."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, _DONE + b"\n")
        os.close(self._pipe)
        if self._watchdog:
            os.waitpid(self._watchdog, 0)

    def _follow(self, lease: Lease, grace: float) -> int:
        """Return the exit code as soon as the command has ended, or must be killed."""
        kill_at, why = 0.0, ""
        trusted_until = lease.trusted_until
        while self._reap():
            if lease.trusted_until != trusted_until:
                trusted_until = lease.trusted_until
                self._allow(lease)
            # The last part of the trusted time is for a command that ends on SIGTERM.
            patience = min(grace, lease.duration / 5)
            if lease.lost:
                self._say(f"{lease.lost}; killing the command")
                return LOST_EXIT_CODE
            if now() >= lease.trusted_until:
                return LOST_EXIT_CODE
            if kill_at and now() >= kill_at:
                return LOST_EXIT_CODE if why else self._code_after_stop()
            if not kill_at and not self._watchdog:
                why, kill_at = "the watchdog ended", now() + patience
            elif not why and now() >= lease.trusted_until - patience:
                why, kill_at = "the lease could not be renewed in time", lease.trusted_until
            elif not kill_at and self.stop.is_set():
                kill_at = now() + grace
                self._signal(signal.SIGTERM)
                continue
            else:
                time.sleep(_TICK_SECONDS)
                continue
            self._say(f"{why}; ending the command")
            self._signal(signal.SIGTERM)
        if why or (self._code == -signal.SIGKILL and not lease.is_valid()):  # by the watchdog
            return LOST_EXIT_CODE
        return self._code_after_stop() if self.stop.is_set() else self._code_of_command()

    def _code_after_stop(self) -> int:
        return 0 if self._code is None or self._code == -signal.SIGTERM else self._code_of_command()

    def _code_of_command(self) -> int:
        code = self._code or 0
        return code if code >= 0 else 128 - code

    def _reap(self) -> bool:
        """Wait for whatever has ended, orphans too; return whether the command still runs."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._note(*ended)
        return self._code is None

    def _note(self, pid: int, status: int) -> None:
        if self._command is not None and pid == self._command.pid:
            self._code = self._command.returncode = os.waitstatus_to_exitcode(status)
        elif pid == self._watchdog:
            self._watchdog = 0

    def _end(self) -> None:
        """Kill all that is left of the command, orphans that left its session too; wait for their end."""
        self._signal(signal.SIGKILL)
        while children := [pid for pid in _children() if pid != self._watchdog]:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                self._note(*os.waitpid(children[0], 0))

    def _signal(self, number: int) -> None:
        if self._command is not None and self._code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._command.pid, number)

    def _allow(self, lease: Lease) -> None:
        """Tell the watchdog until when the command may run."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._pipe, f"{self._command.pid if self._command else 0} {lease.trusted_until}\n".encode())


def _watch(pipe: int) -> None:
    """Kill the process group that ``pipe`` names when its time is over, or when the pipe ends. Never returns."""
    for number in (*_ENDING, *_FORWARDED):
        signal.signal(number, signal.SIG_IGN)
    group, until, rest = 0, float("inf"), b""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while now() < until:
            if not selector.select(None if until == float("inf") else min(_TICK_SECONDS, max(0.0, until - now()))):
                continue
            text = os.read(pipe, 4096)
            if not text:
                break
            *lines, rest = (rest + text).split(b"\n")
            for line in lines:
                if line == _DONE:
                    os._exit(0)
                named, _, end = line.partition(b" ")
                group, until = int(named) or group, float(end)
    if group:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    os._exit(0)


def _children() -> list[int]:
    """Return the children of this process; on a kernel without the file, only the command's group is killed."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir("/proc/self/task"):  # noqa: PTH208
            with open(f"/proc/self/task/{task}/children") as file:  # noqa: PTH123
                children += [int(pid) for pid in file.read().split()]
    return children


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value)


def say(text: str) -> None:
    """Print a line about the lease to standard error."""
    print(f"lease: {text}", file=sys.stderr, flush=True)  # noqa: T201
