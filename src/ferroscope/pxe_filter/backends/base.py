"""A gate that guards nothing: for networks that something else guards, and for trying things out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from ferroscope.contracts.pxe_filter import GateBackend, GateError
from ferroscope.core.boot_macs import SetChange


class NoopGate:
    """See ``contracts.pxe_filter.GateBackend``. It only takes part in the election: every host stays open to all."""

    name = "noop"
    self_closing = False

    def install(self) -> None: ...

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None: ...

    def hold(self, until: float) -> float:
        return until

    def close(self) -> None: ...

    def remove(self) -> None: ...


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
        """Run it to its end and return what it wrote; ``GateError``."""
        try:
            done = subprocess.run(  # noqa: S603  # arguments are ours, input is built from validated values
                [self.path, *arguments],
                input=stdin.encode() if isinstance(stdin, str) else stdin,
                capture_output=True,
                timeout=self._timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise GateError(f"{self.program} did not end within {self._timeout:g} s and was killed") from None
        except OSError as exc:
            raise GateError(f"{self.program} could not be started: {exc.strerror}") from exc
        if done.returncode != 0:
            said = " ".join(done.stderr.decode(errors="replace").split())[:_SAID]
            raise GateError(f"{self.program} failed ({done.returncode}): {said or 'it said nothing'}")
        return done.stdout.decode(errors="replace")

    def present(self) -> bool:
        """Whether the program is installed."""
        return self._found() is not None

    @property
    def path(self) -> str:
        """Where it is; ``GateError`` where it is not installed."""
        found = self._found()
        if found is None:
            raise GateError(f"{self.program} is not installed; install the package {self._package}")
        return found

    def _found(self) -> str | None:
        return shutil.which(self.program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_PLACES]))


# Several mechanisms as one gate: open only where all of them are, closed as soon as one of them is.


class SeveralGates:
    """See ``contracts.pxe_filter.GateBackend``; the first in the list is the first to close."""

    def __init__(self, gates: Sequence[GateBackend]) -> None:
        self._gates = gates
        self.name = ", ".join(gate.name for gate in gates)
        # One that closes by itself keeps machines away from whatever stands behind it.
        self.self_closing = any(gate.self_closing for gate in gates)

    def install(self) -> None:
        self._each(lambda gate: gate.install())

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        for gate in self._gates:
            gate.apply(change, fresh=fresh, progress=progress)
            progress()

    def hold(self, until: float) -> float:
        """From the last to the first: the one in front opens when all behind it have."""
        return min(gate.hold(until) for gate in reversed(self._gates))

    def close(self) -> None:
        self._each(lambda gate: gate.close())

    def remove(self) -> None:
        self._each(lambda gate: gate.remove())

    def _each(self, do: Callable[[GateBackend], None]) -> None:
        """Do it to all, whatever fails; then raise what failed first."""
        failed: list[GateError] = []
        for gate in self._gates:
            try:
                do(gate)
            except GateError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]
