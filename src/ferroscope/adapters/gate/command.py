"""Runs the host's programs: argument lists, a deadline, and errors that say what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

from ferroscope.contracts.pxe_filter import GateError

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
