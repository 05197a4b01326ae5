"""``python stepped.py FILE WORDS ...``: ``ferroscope WORDS``, on a host whose clock of day FILE sets.

The kernel has one clock of day for all namespaces, and to step that would step it for everybody. So this process alone
reads a clock that is ahead by the seconds in FILE, wherever Python code asks for the time of day; CLOCK_MONOTONIC
and CLOCK_BOOTTIME, which a step leaves alone on a real host too, stay what they are. It is not libfaketime, because
Python's sleeps fail under that.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path


def _stepped(read: Callable[[], float], file: Path) -> Callable[[], float]:
    return lambda: read() + float(file.read_text())


def main(file: str, *words: str) -> None:
    """Put the clock in place of the real one, then run the command."""
    seconds = _stepped(time.time, Path(file))
    time.time = seconds
    time.time_ns = lambda: int(seconds() * 1e9)
    from ferroscope.cli.main import main as ferroscope

    ferroscope(list(words))


if __name__ == "__main__":
    main(*sys.argv[1:])
