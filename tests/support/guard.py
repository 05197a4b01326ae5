"""What is quick starts no process: a test outside of ``smoke``, ``system`` and ``nightly`` that does fails at once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests import ROOT

QUICK: Final = ("fast", "store", "api")
_STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system"})


class ProcessStartedError(AssertionError):
    """A quick test was about to start a process."""


class _Watch:
    """Python's audit hook, which stays with the process once it is there."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self)

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event in _STARTS:
            raise ProcessStartedError(f"{event}{arguments[:2]}: a test below tests/system starts no process")


_watch: Final = _Watch()


def is_quick(path: Path) -> bool:
    return any(path.is_relative_to(ROOT / "tests" / folder) for folder in QUICK)


@contextmanager
def no_processes() -> Iterator[None]:
    """Let every attempt to start a process fail."""
    _watch.on = True
    try:
        yield
    finally:
        _watch.on = False
