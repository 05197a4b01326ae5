"""A PXE filter that guards nothing: for networks that something else guards, and for trying things out."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from typing import Final, Protocol

import msgspec

from ferroscope.contracts.pxe_filter import PxeFilterError
from ferroscope.contracts.queue import Clock

PREFIX: Final = "ferroscope_pxe_"


class FilterRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the filter of one network guards on this host.

    ``relayed`` are networks behind routers: their TFTP and HTTP requests carry the router's MAC,
    so they pass while the filter is open.
    """

    network: str
    interfaces: tuple[str, ...]
    http_ports: tuple[int, ...] = ()
    relayed: tuple[str, ...] = ()
    unknown: bool = True

    @property
    def table(self) -> str:
        """The table's name: that of the network as it is, for nft takes letters, digits and ``_.-``."""
        return PREFIX + self.network

    @property
    def former_table(self) -> str:
        """The name that earlier releases gave it, and to that of any network whose name differs in ``_.-`` only."""
        return PREFIX + "".join(char if char.isalnum() else "_" for char in self.network)


# Runs the host's programs: argument lists, a deadline, and errors that say what to do.

_PLACES: Final = ("/usr/sbin", "/sbin")
_SAID: Final = 300


class Command:
    """One program, found when it is first run; ``timeout`` in seconds is the deadline of each run."""

    def __init__(self, program: str, *, package: str, timeout: float) -> None:
        self.program = program
        self._package = package
        self._timeout = timeout

    def __call__(self, *arguments: str, stdin: str | bytes = "") -> str:
        """Run it to its end and return what it wrote; ``PxeFilterError``."""
        try:
            done = subprocess.run(  # noqa: S603  # arguments are ours, input is built from validated values
                [self.path, *arguments],
                input=stdin.encode() if isinstance(stdin, str) else stdin,
                capture_output=True,
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise PxeFilterError(f"{self.program} did not end within {self._timeout:g} s and was killed") from None
        except OSError as exc:
            raise PxeFilterError(f"{self.program} could not be started: {exc.strerror}") from exc
        if done.returncode != 0:
            said = " ".join(done.stderr.decode(errors="replace").split())[:_SAID]
            raise PxeFilterError(f"{self.program} failed ({done.returncode}): {said or 'it said nothing'}")
        return done.stdout.decode(errors="replace")

    def present(self) -> bool:
        """Whether the program is installed."""
        return self._found() is not None

    @property
    def path(self) -> str:
        """Where it is; ``PxeFilterError`` where it is not installed."""
        found = self._found()
        if found is None:
            raise PxeFilterError(f"{self.program} is not installed; install the package {self._package}")
        return found

    def _found(self) -> str | None:
        return shutil.which(self.program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES]))


# In seconds: how long an opening may be on its way, and the longest time-out.
_ARMED: Final = 1.0
_LONGEST: Final = 3.0


class Kernel(Protocol):
    """The steps; each raises ``PxeFilterError``. Time-outs are in seconds; ``step`` is the least difference of two."""

    step: float

    def arm(self, ticket: int, timeout: float) -> None:
        """Add the element ``ticket``; it opens nothing."""

    def open(self, ticket: int, timeout: float) -> None:
        """Take the ticket away and let pass, in this order; without the ticket, nothing happens."""

    def refresh(self, timeout: float) -> None:
        """Let pass for so long from now on; where nobody may pass any more, nothing happens."""


class TimedOpening:
    """``hold`` is that of ``contracts.pxe_filter.FilterBackend``."""

    def __init__(self, kernel: Kernel, clock: Clock) -> None:
        self._kernel = kernel
        self._clock = clock
        self._open_until = 0.0
        self._refreshable = False

    def hold(self, until: float) -> float:
        if self._refreshable and self._clock.monotonic() < self._open_until:
            try:
                return self._refresh(until)
            except PxeFilterError:  # the element has expired meanwhile, or is gone with all the others
                self._refreshable = False
        return self._begin(until)

    def doubt(self) -> None:
        """From now on nothing is refreshed that was opened before."""
        self._refreshable = False

    def forget(self) -> None:
        """It was closed."""
        self._refreshable = False
        self._open_until = 0.0

    def _refresh(self, until: float) -> float:
        """Replace an element that is alive; at the latest, that happens when it would have expired."""
        timeout = self._whole(min(_LONGEST, until - self._open_until))
        if timeout <= 0:
            return self._open_until
        self._open_until += timeout  # should the answer be lost
        self._kernel.refresh(timeout)
        return self._opened(timeout)

    def _begin(self, until: float) -> float:
        """Open from nothing; at the latest, that happens when the ticket expires."""
        if self._whole(until - self._clock.monotonic() - _ARMED) <= 0:
            return self._open_until
        ticket = random.randrange(1, 2**16)  # noqa: S311  # only different from those of a second ago
        self._kernel.arm(ticket, _ARMED)
        armed_until = self._clock.monotonic() + _ARMED
        timeout = self._whole(min(_LONGEST, until - armed_until))
        if timeout <= 0:
            return self._open_until
        self._open_until = max(self._open_until, armed_until + timeout)
        self._kernel.open(ticket, timeout)
        return self._opened(timeout)

    def _opened(self, timeout: float) -> float:
        self._open_until = self._clock.monotonic() + timeout
        self._refreshable = True
        return self._open_until

    def _whole(self, seconds: float) -> float:
        """Return what the kernel can count, and no more."""
        return max(0.0, seconds // self._kernel.step * self._kernel.step)
