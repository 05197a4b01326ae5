"""Shared by the backends: the rules, running host programs, kernel time-outs, and the client of the watchdog.

The kernel starts a time-out when it receives the element. Between our decision and that moment, this process or the
program that it runs may be stopped for any length of time. So no element is added unconditionally: a refresh first
deletes the element that it replaces, and the first opening deletes one that was added just before (``armed``). If
that element has expired, the whole step fails. The latest possible start is therefore known, and the time-out is the
trusted time that is left from then on.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from ferroscope.contracts.store import Clock
from ferroscope.contrib.boot.pxe_filter import PxeFilterError

PREFIX: Final = "ferroscope_pxe_"


class FilterRules(msgspec.Struct, frozen=True, kw_only=True):
    """The services and interfaces that the filter of one network guards on this host.

    ``relayed``: networks behind routers. Their TFTP and HTTP requests carry the router's MAC, so they pass while the
    filter is open.
    """

    network: str
    interfaces: tuple[str, ...]
    http_ports: tuple[int, ...] = ()
    relayed: tuple[str, ...] = ()
    unknown: bool = True

    @property
    def table(self) -> str:
        """The table's name. The network's name can be used as it is: nft accepts letters, digits and ``_.-``."""
        return PREFIX + self.network

    @property
    def former_table(self) -> str:
        """The name in earlier releases, which networks shared if their names differed only in ``_.-``."""
        return PREFIX + "".join(char if char.isalnum() else "_" for char in self.network)


# Runs programs of the host, with argument lists and a time limit.

_SYSTEM_PATHS: Final = ("/usr/sbin", "/sbin")
_MAX_STDERR_CHARACTERS: Final = 300
# Timeout of nft and similar commands: an open filter is refreshed well before the lease ends, also after one that hung.
COMMAND_SECONDS: Final = 2.0


class HostCommand:
    """One program, located when it is first run; ``timeout`` in seconds limits each run."""

    def __init__(self, program: str, *, package: str, timeout: float = COMMAND_SECONDS) -> None:
        self.program = program
        self._package = package
        self._timeout = timeout

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> str:
        """Run it and return its output; ``PxeFilterError``."""
        try:
            process = subprocess.run(  # noqa: S603  # arguments are ours, input is built from validated values
                [self.path, *arguments],
                input=stdin.encode() if isinstance(stdin, str) else stdin,
                capture_output=True,
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PxeFilterError(f"{self.program} timed out after {self._timeout:g} s and was killed") from None
        except OSError as exc:
            raise PxeFilterError(f"cannot run {self.program}: {exc.strerror}") from exc
        if process.returncode != 0:
            stderr = " ".join(process.stderr.decode(errors="replace").split())[:_MAX_STDERR_CHARACTERS]
            raise PxeFilterError(
                f"{self.program} failed with exit code {process.returncode}: {stderr or 'no error message'}"
            )
        return process.stdout.decode(errors="replace")

    def present(self) -> bool:
        """Whether the program is installed."""
        return self._find() is not None

    @property
    def path(self) -> str:
        """Its path; ``PxeFilterError`` if it is not installed."""
        path = self._find()
        if path is None:
            raise PxeFilterError(f"{self.program} is not installed; install the package {self._package}")
        return path

    def _find(self) -> str | None:
        return shutil.which(self.program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_SYSTEM_PATHS]))


# In seconds: the time limit for an opening to reach the kernel, and the longest time-out.
_ARMED_SECONDS: Final = 1.0
_MAX_TIMEOUT_SECONDS: Final = 3.0


class Kernel(Protocol):
    """The kernel operations; each raises ``PxeFilterError``. Time-outs are in seconds, in multiples of ``step``."""

    step: float

    def arm(self, ticket: int, timeout: float) -> None:
        """Add the element ``ticket``, which opens nothing."""

    def open(self, ticket: int, timeout: float) -> None:
        """Delete the ticket, then open; fail without effect if the ticket has expired."""

    def refresh(self, timeout: float) -> None:
        """Keep open for ``timeout`` from now on; fail without effect if the filter is closed already."""


class TimedOpening:
    """Opens the filter with time-outs; ``hold`` is that of ``contracts.plugins.FilterBackend``."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._open_until = 0.0
        self._refreshable = False

    def hold(self, until: float) -> float:
        if self._refreshable and self._clock.monotonic() < self._open_until:
            try:
                return self._refresh(until)
            except PxeFilterError:  # the element has expired, or all were flushed
                self._refreshable = False
        return self._begin(until)

    def doubt(self) -> None:
        """From now on, do not refresh an earlier opening."""
        self._refreshable = False

    def forget(self) -> None:
        """Note that the filter was closed."""
        self._refreshable = False
        self._open_until = 0.0

    def _refresh(self, until: float) -> float:
        """Replace an element that still exists, at the latest when it would have expired."""
        timeout = self._round_down(min(_MAX_TIMEOUT_SECONDS, until - self._open_until))
        if timeout <= 0:
            return self._open_until
        self._open_until += timeout  # in case the refresh takes effect but reports an error
        self._kernel.refresh(timeout)
        return self._note_opening(timeout)

    def _begin(self, until: float) -> float:
        """Open a closed filter, at the latest when the ticket expires."""
        if self._round_down(until - self._clock.monotonic() - _ARMED_SECONDS) <= 0:
            return self._open_until
        ticket = random.randrange(1, 2**16)  # noqa: S311  # only different from those of a second ago
        self._kernel.arm(ticket, _ARMED_SECONDS)
        armed_until = self._clock.monotonic() + _ARMED_SECONDS
        timeout = self._round_down(min(_MAX_TIMEOUT_SECONDS, until - armed_until))
        if timeout <= 0:
            return self._open_until
        self._open_until = max(self._open_until, armed_until + timeout)
        self._kernel.open(ticket, timeout)
        return self._note_opening(timeout)

    def _note_opening(self, timeout: float) -> float:
        self._open_until = self._clock.monotonic() + timeout
        self._refreshable = True
        return self._open_until

    def _round_down(self, seconds: float) -> float:
        """Round down to a multiple of the kernel's step."""
        return max(0.0, seconds // self._kernel.step * self._kernel.step)


_SCRIPT = Path(__file__).with_name("watchdog.py")


class FilterWatchdog:
    """Starts the process when it is first needed, and again after it died."""

    def __init__(self, *, directory: str = "", commands: Sequence[tuple[Sequence[str], str]] = ()) -> None:
        self._instructions = {"directory": directory, "commands": [[list(argv), text] for argv, text in commands]}
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self, until: float) -> bool:
        """Have the filter closed at ``until`` unless held again; return whether it was closed since the last call."""
        closed = self._read_reports() or self._process is None
        self._send({"until": until})
        return closed

    def has_closed(self) -> bool:
        """Whether the filter was, or may have been, closed since the last call of this or of ``hold``."""
        return self._read_reports()

    def release(self) -> None:
        """Stop watching, because the filter is closed."""
        self._read_reports()  # detects a dead process
        if self._process is not None:
            self._send({"until": 0.0})

    def end(self) -> None:
        """Stop the process, which closes the filter if it was held open."""
        if self._process is not None:
            assert self._process.stdin is not None  # noqa: S101  # it was started with a pipe
            assert self._process.stdout is not None  # noqa: S101
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()
            self._process = None

    def _read_reports(self) -> bool:
        if self._process is None:
            return False
        if self._process.poll() is not None:
            self.end()
            return True
        assert self._process.stdout is not None  # noqa: S101
        try:
            return bool(os.read(self._process.stdout.fileno(), 4096))
        except BlockingIOError:
            return False

    def _send(self, message: dict[str, Any]) -> None:
        try:
            if self._process is None:
                self._process = self._start()
                self._write({"close": self._instructions})
            self._write(message)
        except OSError as exc:
            raise PxeFilterError(f"cannot write to the filter's watchdog process: {exc.strerror}") from exc

    def _write(self, message: dict[str, Any]) -> None:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        os.write(self._process.stdin.fileno(), json.dumps(message).encode() + b"\n")

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # signals to our process group must not reach it
        )
        assert process.stdout is not None  # noqa: S101
        os.set_blocking(process.stdout.fileno(), False)
        return process
