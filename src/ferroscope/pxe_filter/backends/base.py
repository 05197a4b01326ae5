"""A PXE filter that guards nothing: for networks that something else guards, and for trying things out."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Final

from ferroscope.contracts.pxe_filter import FilterBackend, PxeFilterError
from ferroscope.core.boot_macs import SetChange


class NoopFilter:
    """See ``contracts.pxe_filter.FilterBackend``. It only takes part in the election: every host stays open to all."""

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


# Several mechanisms as one filter: open only where all of them are, closed as soon as one of them is.


class SeveralFilters:
    """See ``contracts.pxe_filter.FilterBackend``; the first in the list is the first to close."""

    def __init__(self, pxe_filters: Sequence[FilterBackend]) -> None:
        self._pxe_filters = pxe_filters
        self.name = ", ".join(pxe_filter.name for pxe_filter in pxe_filters)
        # One that closes by itself keeps machines away from whatever stands behind it.
        self.self_closing = any(pxe_filter.self_closing for pxe_filter in pxe_filters)

    def install(self) -> None:
        self._each(lambda pxe_filter: pxe_filter.install())

    def apply(self, change: SetChange, *, fresh: bool, progress: Callable[[], object] = lambda: None) -> None:
        for pxe_filter in self._pxe_filters:
            pxe_filter.apply(change, fresh=fresh, progress=progress)
            progress()

    def hold(self, until: float) -> float:
        """From the last to the first: the one in front opens when all behind it have."""
        return min(pxe_filter.hold(until) for pxe_filter in reversed(self._pxe_filters))

    def close(self) -> None:
        self._each(lambda pxe_filter: pxe_filter.close())

    def remove(self) -> None:
        self._each(lambda pxe_filter: pxe_filter.remove())

    def _each(self, do: Callable[[FilterBackend], None]) -> None:
        """Do it to all, whatever fails; then raise what failed first."""
        failed: list[PxeFilterError] = []
        for pxe_filter in self._pxe_filters:
            try:
                do(pxe_filter)
            except PxeFilterError as exc:
                failed.append(exc)
        if failed:
            raise failed[0]
